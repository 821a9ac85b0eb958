"""What a run says about itself while it goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bertwright.training.clock import Place


@dataclass(frozen=True)
class StepReport:
    """The numbers of one step, over all processes.

    Attributes:
        loss: the weighted sum of the losses.
        losses: nats per answer, by question.
        accuracies: share of right answers, by question.
        rate: the multiplier of the learning rates.
        norm: of the gradient before clipping.
        num_tokens: real tokens of the step.
    """

    place: Place
    loss: float
    losses: Mapping[str, float]
    accuracies: Mapping[str, float]
    rate: float
    norm: float
    num_tokens: int


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
