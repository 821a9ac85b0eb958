"""A warning that the time budget allows too few steps."""

from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import TrainingClock
from bertwright.training.run_warnings import RunWarnings

MIN_STEPS = 100
"""Number of steps below which hardly any recipe learns more than token frequencies."""

SMALL_BATCH_TOKENS = 8192
"""Tokens per step that rarely need to be reduced further."""


class FewStepsWarning(Callback):
    """A callback that warns as soon as the speed is known.

    The batch sizes of published recipes suit large machines; elsewhere a step may take minutes.
    """

    def __init__(self, clock: TrainingClock, warnings: RunWarnings) -> None:
        self._clock = clock
        self._warnings = warnings

    def report_step(self, report: StepReport) -> None:
        total = self._clock.total_steps(report.progress.step + 1)
        if self._clock.budget_seconds is None or total > MIN_STEPS:
            return
        tokens = report.num_tokens / (report.progress.step + 1)
        smaller = "lower batch_tokens, such as batch_tokens=8192, or "
        self._warnings.add(
            "few steps",
            f"the budget allows only {total:,} steps of {tokens:,.0f} tokens: "
            f"{smaller if tokens > SMALL_BATCH_TOKENS else ''}raise the budget",
        )
