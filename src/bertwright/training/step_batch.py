"""The batch of one training step, independent of its content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MicroBatch = TypeVar("MicroBatch")


@dataclass(frozen=True)
class StepBatch(Generic[MicroBatch]):
    """The batch of one process in one step.

    Attributes:
        micro_batches: parts computed one after the other.
        loss_counts: sum of the target weights of this process, by loss.
        num_sequences: number of sequences of all processes.
        num_tokens: number of tokens of this process, without padding.
        masked_counts: masked and total positions of this process, by masking objective.
    """

    micro_batches: Sequence[MicroBatch]
    loss_counts: Mapping[str, float]
    num_sequences: int
    num_tokens: int
    masked_counts: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )
