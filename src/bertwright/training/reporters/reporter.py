"""The interface of reporters, and the measurement of throughput."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from bertwright.training.clock import Progress

WINDOW_SECONDS = 15.0
"""Length of the window in which the speed is measured."""


@dataclass(frozen=True)
class StepReport:
    """The metrics of one step, over all processes.

    Attributes:
        loss: weighted sum of the losses.
        losses: losses by name, in nats per target.
        accuracies: fraction of correct predictions, by loss.
        learning_rate_factor: multiplier of the learning rates.
        gradient_norm: norm before clipping.
        num_tokens: tokens without padding since the start of the run, including this step.
        masking_rates: fraction of masked tokens, by masking objective.
    """

    progress: Progress
    loss: float
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    learning_rate_factor: float
    gradient_norm: float
    num_tokens: int
    masking_rates: Mapping[str, float] = field(default_factory=dict[str, float])


def metric_name(objective: str) -> str:
    """Return an objective's prefix of metric names: ``next_sentence`` of ``next-sentence``."""
    return objective.replace("-", "_")


class Reporter:
    """A reporter that does nothing; subclasses override the methods they need."""

    def report_step(self, report: StepReport) -> None:
        """Report a step; called in order."""

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Report an evaluation."""

    def close(self) -> None:
        """Finish when training ends, also on errors."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReporterList(Reporter):
    """Several reporters as one, called in order."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def report_step(self, report: StepReport) -> None:
        for reporter in self._reporters:
            reporter.report_step(report)

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        for reporter in self._reporters:
            reporter.report_evaluation(progress, metrics)

    def close(self) -> None:
        for reporter in self._reporters:
            reporter.close()


class ThroughputMeter(Reporter):
    """Measures steps and tokens per second, and the FLOPs utilisation of the hardware.

    ``flops_per_token`` has one number per phase; ``peak_flops`` is per second. Without them the
    utilisation is unknown. In a list, it comes before the reporters that read it.
    """

    def __init__(
        self,
        flops_per_token: Sequence[float] = (),
        peak_flops: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flops_per_token = flops_per_token
        self._peak_flops = peak_flops
        self._now = now
        self._samples: deque[tuple[float, int, int]] = deque()
        self._phase = 0

    def report_step(self, report: StepReport) -> None:
        if report.progress.phase != self._phase:
            self._samples.clear()
            self._phase = report.progress.phase
        self._samples.append((self._now(), report.num_tokens, report.progress.step))
        while (
            len(self._samples) > 2 and self._samples[-1][0] - self._samples[0][0] > WINDOW_SECONDS
        ):
            self._samples.popleft()

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        self._samples.clear()

    def tokens_per_second(self) -> float | None:
        """Return the tokens per second; None before the second step."""
        return self._per_second(1)

    def steps_per_second(self) -> float | None:
        """Return the steps per second; None before the second step."""
        return self._per_second(2)

    def flops_utilisation(self) -> float | None:
        """Return the used fraction of peak FLOPs; None if unknown."""
        speed = self.tokens_per_second()
        if speed is None or self._peak_flops is None or not self._flops_per_token:
            return None
        return speed * self._flops_per_token[self._phase] / self._peak_flops

    def _per_second(self, field: int) -> float | None:
        if len(self._samples) < 2 or self._samples[-1][0] <= self._samples[0][0]:
            return None
        first, last = self._samples[0], self._samples[-1]
        return (last[field] - first[field]) / (last[0] - first[0])
