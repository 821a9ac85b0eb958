"""What the loop needs of a batch, whatever is in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MicroBatch = TypeVar("MicroBatch")


@dataclass(frozen=True)
class StepBatch(Generic[MicroBatch]):
    """What one process trains on in one step.

    Attributes:
        micro_batches: the parts that are computed one after the other.
        counts: by question, the sum of the weights of this process's answers.
        num_rows: rows of all processes.
        num_tokens: real tokens of this process.
        hidden: by question that hides, how many places of this process, and of how many.
    """

    micro_batches: Sequence[MicroBatch]
    counts: Mapping[str, float]
    num_rows: int
    num_tokens: int
    hidden: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )
