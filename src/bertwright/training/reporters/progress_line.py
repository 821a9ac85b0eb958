"""The progress line on the terminal: step, loss, speed and remaining time."""

import time
from collections.abc import Callable, Mapping

from rich import progress
from rich.console import Console

from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import UNKNOWN_TOTAL_STEPS, Progress, TrainingClock
from bertwright.training.reporters.throughput import ThroughputMeter

MAX_METRICS = 8
"""Metrics printed per evaluation; recommenders have thirty."""


class ProgressLine(Callback):
    """A line updated in place on a terminal, printed every ``seconds_per_line`` elsewhere.

    The loss is a moving average over about twenty steps.
    """

    def __init__(
        self,
        clock: TrainingClock,
        throughput: ThroughputMeter,
        console: Console | None = None,
        seconds_per_line: float = 15.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._throughput = throughput
        self._console = console or Console(stderr=True, highlight=False)
        self._seconds_per_line = seconds_per_line
        self._now = now
        self._printed_at = now()
        self._loss: float | None = None
        self._line = ""
        self._bar = progress.Progress(
            progress.BarColumn(20),
            progress.TextColumn("{task.description}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=1.0)
        if self._console.is_terminal:
            self._bar.start()

    def start(self, description: str) -> None:
        """Show a description, and the remaining time, until the first step ends."""
        remaining = self._remaining_time(0)
        line = description if remaining is None else f"{description}  {remaining}"
        if self._console.is_terminal:
            self._bar.update(self._task, description=line)
        else:
            self._console.print(line, soft_wrap=True)

    def report_step(self, report: StepReport) -> None:
        before = self._loss
        self._loss = report.loss if before is None else before + 0.05 * (report.loss - before)
        self._line = self._describe(report)
        if self._console.is_terminal:
            self._bar.update(self._task, completed=report.progress.midpoint, description=self._line)
        elif self._now() - self._printed_at >= self._seconds_per_line:
            self._print_line()

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        parts = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in metrics.items()]
        text = ", ".join(parts[:MAX_METRICS])
        if more := parts[MAX_METRICS:]:
            text += f" and {len(more)} more in metrics.jsonl"
        self._console.print(f"step {progress.step:,}: {text}", soft_wrap=True)

    def close(self) -> None:
        if self._console.is_terminal:
            self._bar.stop()
        if self._line:
            self._print_line()

    def _print_line(self) -> None:
        self._console.print(self._line, soft_wrap=True)
        self._line, self._printed_at = "", self._now()

    def _describe(self, report: StepReport) -> str:
        step = report.progress.step
        total = self._clock.total_steps(step)
        planned = f" of {total:,}" if total != UNKNOWN_TOTAL_STEPS else ""
        parts = [f"step {step + 1:,}{planned}", f"loss {self._loss:.3f}"]
        parts += [f"{rate:.1%} {name}" for name, rate in report.masking_rates.items()]
        if (speed := self._throughput.tokens_per_second()) is not None:
            parts.append(f"{speed:,.0f} tokens/s")
        if (utilisation := self._throughput.flops_utilisation()) is not None:
            parts.append(f"{utilisation:.0%} of peak")
        if (remaining := self._remaining_time(step + 1)) is not None:
            parts.append(remaining)
        return "  ".join(parts)

    def _remaining_time(self, step: int) -> str | None:
        """Return the remaining time at a step, from the budget or the measured speed."""
        if self._clock.budget_seconds is not None:
            seconds = self._clock.budget_seconds - self._clock.elapsed_seconds()
            return f"{format_duration(max(0.0, seconds))} left"
        steps = self._throughput.steps_per_second()
        if steps is None:
            return None
        return f"{format_duration((self._clock.total_steps(step) - step) / steps)} left"


def format_duration(seconds: float) -> str:
    """Format seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
