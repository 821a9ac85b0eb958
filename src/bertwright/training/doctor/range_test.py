"""The range test (Smith 2017): the learning rate rises exponentially until the loss diverges.

What it bears for a moment is more than what it bears for long: a peak rate should stay below the
largest stable one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertwright.optimisers.adam import AdamFamily
from bertwright.recipes import Recipe
from bertwright.training.clock import Clock
from bertwright.training.doctor.findings import Finding, Verdict
from bertwright.training.doctor.optimiser_checks import rise
from bertwright.training.doctor.trial import Enough, Trial
from bertwright.training.reporting import StepReport

LOWEST, HIGHEST = 1e-6, 10.0

FEW_STEPS = 60
"""Below which the rate rises too fast to say much."""

DIVERGED, RISEN = 1.0, 0.2
"""Nats above the lowest smoothed loss: where a run has diverged, and where that has begun."""


@dataclass(frozen=True)
class Range:
    """Rates that were taken, in rising order, and the losses after them."""

    rates: Sequence[float]
    losses: Sequence[float]
    finite: bool

    def smoothed(self) -> list[float]:
        """The losses as a moving mean."""
        mean, weight, found = 0.0, 0.0, list[float]()
        for loss in self.losses:
            mean, weight = 0.8 * mean + 0.2 * loss, 0.8 * weight + 0.2
            found.append(mean / weight)
        return found

    @property
    def diverged(self) -> bool:
        """Whether the rate became too high."""
        smoothed = self.smoothed()
        return not self.finite or (bool(smoothed) and smoothed[-1] > min(smoothed) + DIVERGED)

    @property
    def largest_stable(self) -> float:
        """The highest rate before the loss began to rise for good."""
        smoothed = np.array(self.smoothed())
        lowest = int(smoothed.argmin())
        risen = smoothed[lowest:] > smoothed[lowest] + RISEN
        return self.rates[lowest + int(risen.argmax()) - 1 if risen.any() else len(smoothed) - 1]


def range_test(trial: Trial, clock: Clock) -> Range:
    """Raise the rate with the progress of the clock, by the recipe's own optimiser."""
    optimiser = trial.recipe.optimiser
    assert isinstance(optimiser, AdamFamily)
    peak = optimiser.rate
    rates: list[float] = []
    losses: list[float] = []

    def rate(progress: float) -> float:
        return LOWEST * (HIGHEST / LOWEST) ** progress / peak

    def watch(report: StepReport) -> None:
        rates.append(report.rate * peak)
        losses.append(report.losses[trial.question])
        if Range(rates, losses, True).diverged:
            raise Enough

    finite = trial.run(clock, watch, optimiser=optimiser, rate=rate)
    return Range(rates, losses, finite)


def judged(found: Range, recipe: Recipe) -> Finding:
    """The finding: the recipe's highest rate against the largest stable one."""
    assert isinstance(recipe.optimiser, AdamFamily)
    peak = recipe.optimiser.rate * rise(recipe).highest
    if len(found.losses) < FEW_STEPS and not found.diverged:
        return Finding(
            "trials.range-test",
            "note",
            f"only {len(found.losses)} steps fitted in the time: too few to say which rates hold",
            "give the trials more --minutes, or try a smaller size of the recipe",
            {"steps": len(found.losses), "peak_rate": peak},
        )
    stable = found.largest_stable
    seen = f"rates up to {stable:.2g} were stable in {len(found.losses)} steps" + (
        "" if found.diverged else f", and none up to {found.rates[-1]:.2g} diverged"
    )
    verdict: Verdict = "ok"
    advice = ""
    if peak > stable:
        verdict = "error" if peak > 2 * stable else "warning"
        advice = f"set optimiser.rate={stable / 3:.1g} or below"
    elif peak < stable / 200:
        verdict = "note"
        advice = f"a higher optimiser.rate, up to {stable / 5:.1g}, may learn faster"
    return Finding(
        "trials.range-test",
        verdict,
        f"{seen}; the recipe's peak is {peak:.2g}",
        advice,
        {"largest_stable_rate": stable, "peak_rate": peak, "steps": len(found.losses)},
    )
