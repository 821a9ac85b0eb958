"""What a run says about itself while it goes: to a person, and into a file."""

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bertwright.errors import MissingExtra
from bertwright.files import full_disk_named
from bertwright.training.clock import Clock, Place

STEPS_PER_LINE = 10
"""Steps that one line of ``metrics.jsonl`` sums up."""

WINDOW_SECONDS = 15.0
"""Over which the speed is measured."""


@dataclass(frozen=True)
class StepReport:
    """The numbers of one step, over all processes.

    Attributes:
        loss: the weighted sum of the losses.
        losses: nats per answer, by question.
        accuracies: share of right answers, by question.
        rate: the multiplier of the learning rates.
        norm: of the gradient before clipping.
        tokens: real tokens since the run began, this step included.
    """

    place: Place
    loss: float
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    rate: float
    norm: float
    tokens: int


class Reporter:
    """Says nothing; what speaks or writes overrides the moments it needs."""

    def step(self, report: StepReport) -> None:
        """After each step, in order."""

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        """After each evaluation."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


class Reporters(Reporter):
    """Several reporters as one."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters
        self._open = ExitStack()

    def step(self, report: StepReport) -> None:
        for reporter in self._reporters:
            reporter.step(report)

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        for reporter in self._reporters:
            reporter.evaluation(place, figures)

    def __enter__(self) -> Self:
        for reporter in self._reporters:
            self._open.enter_context(reporter)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, traceback)


class Speed:
    """Tokens per second, and the share of the machine's matrix peak that they need.

    ``operations`` are the floating-point operations that a token of each phase needs; ``peak`` is
    what the machine can do in a second. Without them the share is unknown.
    """

    def __init__(
        self,
        operations: Sequence[float] = (),
        peak: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._operations = operations
        self._peak = peak
        self._now = now
        self._seen: deque[tuple[float, int, int]] = deque()

    def saw(self, report: StepReport) -> None:
        """Note a step."""
        self._seen.append((self._now(), report.tokens, report.place.step))
        while len(self._seen) > 2 and self._seen[-1][0] - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    def restart(self) -> None:
        """Forget what was seen: time was spent on something else."""
        self._seen.clear()

    def tokens_per_second(self) -> float | None:
        """None while fewer than two steps were seen."""
        return self._per_second(1)

    def steps_per_second(self) -> float | None:
        """None while fewer than two steps were seen."""
        return self._per_second(2)

    def peak_share(self, phase: int) -> float | None:
        """The share of the peak that the operations of a phase make at this speed."""
        speed = self.tokens_per_second()
        if speed is None or self._peak is None or not self._operations:
            return None
        return speed * self._operations[phase] / self._peak

    def _per_second(self, field: int) -> float | None:
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return None
        return (self._seen[-1][field] - self._seen[0][field]) / (
            self._seen[-1][0] - self._seen[0][0]
        )


class MetricsFile(Reporter):
    """``metrics.jsonl``: a line for every ten steps and one for every evaluation, each flushed.

    Losses and accuracies are means over the steps of the line. Lines after ``first_step`` that an
    earlier process wrote are removed: those steps are taken again.
    """

    def __init__(self, file: Path, clock: Clock, speed: Speed, first_step: int = 0) -> None:
        self._file = file
        self._clock = clock
        self._speed = speed
        self._reports: list[StepReport] = []
        _keep_lines_until(file, first_step)

    def step(self, report: StepReport) -> None:
        self._speed.saw(report)
        self._reports.append(report)
        if (report.place.step + 1) % STEPS_PER_LINE == 0:
            self._write_reports()

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        self._speed.restart()
        self._write({**self._where(place.step, place), **figures})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reports:
            self._write_reports()

    def _write_reports(self) -> None:
        reports, self._reports = self._reports, []
        last = reports[-1]
        line: dict[str, Any] = {
            **self._where(last.place.step + 1, last.place),
            "loss": _mean([r.loss for r in reports]),
        }
        for name in last.losses:
            asked = [r for r in reports if name in r.losses]
            line[f"{name}_loss"] = _mean([r.losses[name] for r in asked])
            line[f"{name}_accuracy"] = _mean([r.accuracies[name] for r in asked])
        line |= {"rate": last.rate, "gradient_norm": last.norm, "tokens": last.tokens}
        line["tokens_per_second"] = self._speed.tokens_per_second()
        line["peak_share"] = self._speed.peak_share(last.place.phase)
        self._write(line)

    def _where(self, step: int, place: Place) -> dict[str, Any]:
        seconds = round(self._clock.elapsed(), 3)
        return {
            "step": step,
            "progress": round(place.progress, 6),
            "phase": place.phase,
            "seconds": seconds,
        }

    def _write(self, line: Mapping[str, Any]) -> None:
        with full_disk_named(self._file), open(self._file, "a", encoding="utf-8") as opened:
            opened.write(json.dumps(line) + "\n")


class ProgressLine(Reporter):
    """One line on stderr: how far, how fast, how good, how long still.

    On a terminal it is drawn anew a few times a second; elsewhere a line is printed every
    ``seconds_per_line``.
    """

    def __init__(
        self,
        clock: Clock,
        speed: Speed,
        seconds_per_line: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._speed = speed
        self._terminal = sys.stderr.isatty()
        self._interval = 0.2 if self._terminal else seconds_per_line
        self._now = now
        self._said = -1e9
        self._loss: float | None = None
        self._heldout = ""
        self._last = ""

    def step(self, report: StepReport) -> None:
        previous = self._loss
        self._loss = report.loss if previous is None else 0.9 * previous + 0.1 * report.loss
        self._last = self._line(report.place)
        if self._now() - self._said >= self._interval:
            self._say(self._last)

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        named = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in figures.items()]
        self._heldout = named[0] if named else ""
        self._end_line()
        print(f"step {place.step:,}: {', '.join(named)}", file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._last:
            self._say(self._last)
        self._end_line()

    def _line(self, place: Place) -> str:
        total = self._clock.total(place.step)
        parts = [f"step {place.step + 1:,}/{total:,} ({place.middle:.0%})", f"loss {self._loss:.3f}"]
        if self._heldout:
            parts.append(self._heldout)
        tokens, steps = self._speed.tokens_per_second(), self._speed.steps_per_second()
        if tokens is not None:
            parts.append(f"{tokens:,.0f} tokens/s")
        share = self._speed.peak_share(place.phase)
        if share is not None:
            parts.append(f"{share:.0%} of peak")
        if steps is not None:
            parts.append(f"{_duration((total - place.step - 1) / steps)} left")
        return "  ".join(parts)

    def _say(self, line: str) -> None:
        self._said = self._now()
        if self._terminal:
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
        else:
            print(line, file=sys.stderr, flush=True)
        self._last = ""

    def _end_line(self) -> None:
        if self._terminal:
            sys.stderr.write("\n")


class TensorBoard(Reporter):
    """The same numbers for TensorBoard.

    Errors: MissingExtra when it is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", "tensorboard") from error
        self._writer: Any = SummaryWriter(str(folder))

    def step(self, report: StepReport) -> None:
        step = report.place.step + 1
        self._writer.add_scalar("loss", report.loss, step)
        for name, loss in report.losses.items():
            self._writer.add_scalar(f"{name}/loss", loss, step)
            self._writer.add_scalar(f"{name}/accuracy", report.accuracies[name], step)
        self._writer.add_scalar("rate", report.rate, step)
        self._writer.add_scalar("gradient_norm", report.norm, step)

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(f"evaluation/{name}", value, place.step)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.close()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _keep_lines_until(file: Path, step: int) -> None:
    if not file.exists():
        return
    kept: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] > step:
                break
        except (ValueError, KeyError):
            break
        kept.append(line + "\n")
    file.write_text("".join(kept), encoding="utf-8")
