"""What a run tells about itself while it goes, and to whom: the protocol, and the speed."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from bertwright.training.clock import Place

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
        hidden: the share of the real tokens of the step that each question hides and asks for.
    """

    place: Place
    loss: float
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    rate: float
    norm: float
    tokens: int
    hidden: Mapping[str, float] = field(default_factory=dict[str, float])


def figure_name(question: str) -> str:
    """A question's name in the names of figures: ``next-sentence`` gives ``next_sentence_loss``."""
    return question.replace("-", "_")


class Reporter:
    """Says nothing; what speaks or writes overrides the moments it needs."""

    def step(self, report: StepReport) -> None:
        """After each step, in order."""

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        """After each evaluation."""

    def close(self) -> None:
        """When training ends, however it ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reporters(Reporter):
    """Several reporters as one, told in their order."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def step(self, report: StepReport) -> None:
        for reporter in self._reporters:
            reporter.step(report)

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        for reporter in self._reporters:
            reporter.evaluation(place, figures)

    def close(self) -> None:
        for reporter in self._reporters:
            reporter.close()


class Speed(Reporter):
    """Steps and tokens per second, and the share of the machine's matrix peak that they need.

    ``operations`` are the floating-point operations that a token of each phase needs; ``peak`` is
    what the machine does in a second. Without them the share is unknown. Whoever asks for the speed
    is told after it.
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
        self._phase = 0

    def step(self, report: StepReport) -> None:
        if report.place.phase != self._phase:
            self._seen.clear()
            self._phase = report.place.phase
        self._seen.append((self._now(), report.tokens, report.place.step))
        while len(self._seen) > 2 and self._seen[-1][0] - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        self._seen.clear()

    def tokens_per_second(self) -> float | None:
        """None while fewer than two steps were seen."""
        return self._per_second(1)

    def steps_per_second(self) -> float | None:
        """None while fewer than two steps were seen."""
        return self._per_second(2)

    def peak_share(self) -> float | None:
        """The share of the peak; None while it is unknown."""
        speed = self.tokens_per_second()
        if speed is None or self._peak is None or not self._operations:
            return None
        return speed * self._operations[self._phase] / self._peak

    def _per_second(self, field: int) -> float | None:
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return None
        first, last = self._seen[0], self._seen[-1]
        return (last[field] - first[field]) / (last[0] - first[0])
