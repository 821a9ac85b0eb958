"""The warning that a budget of time is too short for steps so large."""

from collections.abc import Callable

from bertwright.training.clock import Clock
from bertwright.training.reporting import Reporter, StepReport

FEW = 100
"""Steps with which hardly any recipe learns more than how frequent pieces are."""

SMALL = 8192
"""Tokens of a step that hardly need be fewer."""


class FewSteps(Reporter):
    """Warns once, as soon as the speed is known.

    The batches of published recipes are those of large machines: a step of one may take minutes
    elsewhere.
    """

    def __init__(self, clock: Clock, warn: Callable[[str], None]) -> None:
        self._clock = clock
        self._warn = warn
        self._warned = False

    def step(self, report: StepReport) -> None:
        total = self._clock.total(report.place.step + 1)
        if self._clock.budget is None or self._warned or total > FEW:
            return
        self._warned = True
        tokens = report.tokens / (report.place.step + 1)
        less = "set batch_tokens to less, as batch_tokens=8192, or " if tokens > SMALL else ""
        self._warn(
            f"the budget has time for {total:,} steps only, of {tokens:,.0f} tokens each: {less}"
            f"give more time"
        )
