"""Learning rate range test (Smith 2017): raise the learning rate until the loss diverges.

A learning rate that is stable for a few steps may still be too high in the long run, so the peak
should stay below the largest stable one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertwright.optimisers.adam import AdamFamilyConfig
from bertwright.optimisers.muon import MuonFamilyConfig
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import StepReport
from bertwright.training.clock import TrainingClock
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity
from bertwright.training.diagnostics.doctor.optimiser_checks import warmup_shape
from bertwright.training.diagnostics.doctor.trial import DiagnosticTrial, StopTrial

MIN_LEARNING_RATE, MAX_LEARNING_RATE = 1e-6, 10.0

MIN_STEPS = 60
"""Minimum number of steps; with fewer, the learning rate rises too fast to conclude anything."""

DIVERGENCE_NATS, RISE_NATS = 1.0, 0.2
"""Nats above the lowest smoothed loss at which it has diverged, and at which it starts to."""


class SmoothedLoss:
    """A moving average over about five losses, and its minimum."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0
        self.lowest = float("inf")

    def add(self, loss: float) -> float:
        """Add a loss; return the average."""
        self._sum, self._weight = 0.8 * self._sum + 0.2 * loss, 0.8 * self._weight + 0.2
        mean = self._sum / self._weight
        self.lowest = min(self.lowest, mean)
        return mean

    def add_and_check(self, loss: float) -> bool:
        """Add a loss; return whether the average has diverged."""
        return self.add(loss) > self.lowest + DIVERGENCE_NATS


@dataclass(frozen=True)
class RangeTestResult:
    """The learning rates, ascending, and the losses."""

    learning_rates: Sequence[float]
    losses: Sequence[float]
    is_finite: bool

    @property
    def has_diverged(self) -> bool:
        """Return whether the learning rate became too high."""
        average = SmoothedLoss()
        return not self.is_finite or any([average.add_and_check(loss) for loss in self.losses][-1:])

    @property
    def largest_stable_learning_rate(self) -> float:
        """Return the highest learning rate before the loss rose from its minimum."""
        average = SmoothedLoss()
        smoothed = np.array([average.add(loss) for loss in self.losses])
        lowest = int(smoothed.argmin())
        risen = smoothed[lowest:] > smoothed[lowest] + RISE_NATS
        return self.learning_rates[
            lowest + int(risen.argmax()) - 1 if risen.any() else len(smoothed) - 1
        ]


def run_range_test(trial: DiagnosticTrial, clock: TrainingClock) -> RangeTestResult:
    """Raise the learning rate of the recipe's optimiser over the run of the clock."""
    optimiser = trial.recipe.optimiser
    assert isinstance(optimiser, AdamFamilyConfig)
    peak = optimiser.learning_rate
    learning_rates: list[float] = []
    losses: list[float] = []
    smoothed = SmoothedLoss()

    def factor(fraction: float) -> float:
        return MIN_LEARNING_RATE * (MAX_LEARNING_RATE / MIN_LEARNING_RATE) ** fraction / peak

    def on_step(report: StepReport) -> None:
        learning_rates.append(report.learning_rate_factor * peak)
        losses.append(report.losses[trial.objective])
        if smoothed.add_and_check(losses[-1]):
            raise StopTrial

    is_finite = trial.run(clock, on_step, optimiser=optimiser, learning_rate_factor=factor)
    return RangeTestResult(learning_rates, losses, is_finite)


def diagnose_range_test(result: RangeTestResult, recipe: Recipe) -> Diagnostic:
    """Compare the recipe's peak learning rate with the largest stable one."""
    assert isinstance(recipe.optimiser, AdamFamilyConfig)
    peak = recipe.optimiser.learning_rate * warmup_shape(recipe).highest
    is_short = len(result.losses) < MIN_STEPS
    stable = result.largest_stable_learning_rate if result.losses else MIN_LEARNING_RATE
    severity: Severity = "note" if is_short else "ok"
    advice = "too few steps to be sure: give the trials more --minutes"
    if result.has_diverged and peak > (10 if is_short else 1) * stable:
        severity = "error" if peak > 2 * stable else "warning"
        advice = f"set {_learning_rate_overrides(recipe.optimiser, stable / 3)} or lower"
    elif not is_short and peak < stable / 200:
        severity = "note"
        overrides = _learning_rate_overrides(recipe.optimiser, stable / 5)
        advice = f"a higher learning rate, up to {overrides}, may learn faster"
    no_divergence = "" if result.has_diverged else "; none diverged"
    return Diagnostic(
        "trials.range-test",
        severity,
        f"learning rates up to {stable:.2g} were stable in {len(result.losses)} steps"
        f"{no_divergence}; the recipe's peak is {peak:.2g}",
        advice,
        {
            "largest_stable_learning_rate": stable,
            "peak_learning_rate": peak,
            "steps": len(result.losses),
        },
    )


def _learning_rate_overrides(optimiser: AdamFamilyConfig, learning_rate: float) -> str:
    """Return the overrides for a learning rate; Muon's two learning rates rise together."""
    overrides = f"optimiser.learning_rate={learning_rate:.1g}"
    if isinstance(optimiser, MuonFamilyConfig):
        matrix_rate = optimiser.matrix_learning_rate * learning_rate / optimiser.learning_rate
        overrides += f" optimiser.matrix_learning_rate={matrix_rate:.1g}"
    return overrides
