"""The range test (Smith 2017): the learning rate rises exponentially until the loss diverges.

What it bears for a moment is more than what it bears for long: a peak rate should stay below the
largest stable one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertwright.optimisers.adam import AdamFamily
from bertwright.optimisers.muon import Muon
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


class Smoothed:
    """A moving mean of some five losses, and the lowest it was."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0
        self.lowest = float("inf")

    def add(self, loss: float) -> float:
        """Take in a loss; returns the mean."""
        self._sum, self._weight = 0.8 * self._sum + 0.2 * loss, 0.8 * self._weight + 0.2
        mean = self._sum / self._weight
        self.lowest = min(self.lowest, mean)
        return mean

    def diverges(self, loss: float) -> bool:
        """Take in a loss; returns whether the mean is far above its lowest."""
        return self.add(loss) > self.lowest + DIVERGED


@dataclass(frozen=True)
class Range:
    """Rates that were taken, in rising order, and the losses after them."""

    rates: Sequence[float]
    losses: Sequence[float]
    finite: bool

    @property
    def diverged(self) -> bool:
        """Whether the rate became too high."""
        smoothed = Smoothed()
        return not self.finite or any([smoothed.diverges(loss) for loss in self.losses][-1:])

    @property
    def largest_stable(self) -> float:
        """The highest rate before the loss rose from its lowest."""
        mean = Smoothed()
        smoothed = np.array([mean.add(loss) for loss in self.losses])
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
    smoothed = Smoothed()

    def rate(progress: float) -> float:
        return LOWEST * (HIGHEST / LOWEST) ** progress / peak

    def watch(report: StepReport) -> None:
        rates.append(report.rate * peak)
        losses.append(report.losses[trial.question])
        if smoothed.diverges(losses[-1]):
            raise Enough

    finite = trial.run(clock, watch, optimiser=optimiser, rate=rate)
    return Range(rates, losses, finite)


def judged(found: Range, recipe: Recipe) -> Finding:
    """The finding: the recipe's highest rate against the largest stable one."""
    assert isinstance(recipe.optimiser, AdamFamily)
    peak = recipe.optimiser.rate * rise(recipe).highest
    few = len(found.losses) < FEW_STEPS
    stable = found.largest_stable if found.losses else LOWEST
    verdict: Verdict = "note" if few else "ok"
    advice = "too few steps to be sure: give the trials more --minutes" if few else ""
    if found.diverged and peak > (10 if few else 1) * stable:
        verdict = "error" if peak > 2 * stable else "warning"
        advice = f"set {_rates(recipe.optimiser, stable / 3)} or below"
    elif not few and peak < stable / 200:
        verdict = "note"
        advice = f"a higher rate, up to {_rates(recipe.optimiser, stable / 5)}, may learn faster"
    reached = "" if found.diverged else "; none that was tried diverged"
    return Finding(
        "trials.range-test",
        verdict,
        f"rates up to {stable:.2g} were stable in {len(found.losses)} steps{reached}; the recipe's "
        f"peak is {peak:.2g}",
        advice,
        {"largest_stable_rate": stable, "peak_rate": peak, "steps": len(found.losses)},
    )


def _rates(optimiser: AdamFamily, rate: float) -> str:
    """The changes that bring a recipe to a rate; Muon's two rates were raised together."""
    changes = f"optimiser.rate={rate:.1g}"
    if isinstance(optimiser, Muon):
        changes += f" optimiser.matrix_rate={optimiser.matrix_rate * rate / optimiser.rate:.1g}"
    return changes
