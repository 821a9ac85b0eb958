"""The progress line: what is being done, how far, how good, how fast, how long still."""

import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from bertwright.training.clock import UNKNOWN_TOTAL, Clock, Place
from bertwright.training.reporting import Reporter, Speed, StepReport

MOST_FIGURES = 8
"""Of an evaluation, on its line; recommenders have thirty."""


class ProgressLine(Reporter):
    """On a terminal a line that is drawn anew; elsewhere a printed one every now and then.

    The loss is a moving mean of some twenty steps.
    """

    def __init__(
        self,
        clock: Clock,
        speed: Speed,
        console: Console | None = None,
        seconds_per_line: float = 15.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._speed = speed
        self._console = console or Console(stderr=True, highlight=False)
        self._seconds_per_line = seconds_per_line
        self._now = now
        self._said = now()
        self._loss: float | None = None
        self._line = ""
        self._bar = Progress(
            BarColumn(20), TextColumn("{task.description}"), console=self._console, transient=True
        )
        self._task = self._bar.add_task("", total=1.0)
        if self._console.is_terminal:
            self._bar.start()

    def begin(self, activity: str) -> None:
        """Say what is being done before the first step ends, and the time of the budget."""
        left = self._left(0)
        line = activity if left is None else f"{activity}  {left}"
        if self._console.is_terminal:
            self._bar.update(self._task, description=line)
        else:
            self._console.print(line, soft_wrap=True)

    def step(self, report: StepReport) -> None:
        before = self._loss
        self._loss = report.loss if before is None else before + 0.05 * (report.loss - before)
        self._line = self._described(report)
        if self._console.is_terminal:
            self._bar.update(self._task, completed=report.place.middle, description=self._line)
        elif self._now() - self._said >= self._seconds_per_line:
            self._print_line()

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        shown = [f"{name.replace('_', ' ')} {x:.4g}" for name, x in figures.items()]
        found = ", ".join(shown[:MOST_FIGURES])
        if more := shown[MOST_FIGURES:]:
            found += f" and {len(more)} more in metrics.jsonl"
        self._console.print(f"step {place.step:,}: {found}", soft_wrap=True)

    def close(self) -> None:
        if self._console.is_terminal:
            self._bar.stop()
        if self._line:
            self._print_line()

    def _print_line(self) -> None:
        self._console.print(self._line, soft_wrap=True)
        self._line, self._said = "", self._now()

    def _described(self, report: StepReport) -> str:
        place = report.place
        total = self._clock.total(place.step)
        planned = f" of {total:,}" if total != UNKNOWN_TOTAL else ""
        parts = [f"step {place.step + 1:,}{planned}", f"loss {self._loss:.3f}"]
        parts += [f"{hidden:.1%} {name}" for name, hidden in report.hidden.items()]
        tokens, share = self._speed.tokens_per_second(), self._speed.peak_share()
        if tokens is not None:
            parts.append(f"{tokens:,.0f} tokens/s")
        if share is not None:
            parts.append(f"{share:.0%} of peak")
        if (left := self._left(place.step + 1)) is not None:
            parts.append(left)
        return "  ".join(parts)

    def _left(self, step: int) -> str | None:
        """Return the time that is left from a step on: of the budget, or by the speed so far."""
        if self._clock.budget is not None:
            return f"{duration(max(0.0, self._clock.budget - self._clock.elapsed()))} left"
        steps = self._speed.steps_per_second()
        if steps is None:
            return None
        return f"{duration((self._clock.total(step) - step) / steps)} left"


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
