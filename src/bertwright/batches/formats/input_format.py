"""The input format axis, and the sequence source that a format returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.token_info import DataRequirement, Relation, SequenceBatch
from bertwright.core.config import Config
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


@dataclass(frozen=True, eq=False)
class SequenceSource:
    """A source of sequences by index, the same in every process, order and batch.

    ``num_sequences`` is the number of sequences of an epoch. ``sequences(index, epoch)`` returns
    the sequences at ``index`` (B,), each in [0, num_sequences), of ``epoch``, an int or (B,). It is
    a pure function of (seed, epoch, index).
    """

    num_sequences: int
    sequences: Callable[[IntArray, Counters], SequenceBatch]


class InputFormat(Config):
    """An input format; ``length`` is the sequence length, padding included."""

    length: int = Field(default=128, ge=8, le=1 << 20)

    num_directions: ClassVar[int] = 1
    """Number of reading directions; a step has an equal part for each."""

    @property
    def is_sequential(self) -> bool:
        """Return whether sequence i of a step continues sequence i of the step before."""
        return False

    @property
    def is_backward(self) -> bool:
        """Return whether sequences in text order come from the end of the text to its start."""
        return False

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        """Return the data or annotations that the format needs and not every data set has."""
        return frozenset()

    @property
    def relations(self) -> frozenset[Relation]:
        """Return the possible relations between the texts of a sequence; empty for single texts."""
        return frozenset()

    @property
    def isolation_setting(self) -> str | None:
        """Return the setting that puts isolated texts into one sequence; None if none does."""
        return None

    @property
    def for_evaluation(self) -> "InputFormat":
        """Return the input format for evaluation data."""
        return self

    def start_token(self, specials: SpecialTokens) -> int:
        """Return the id of the token before a document that begins a sequence."""
        return specials.start

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        """Return the sequences of a split; the randomness of each epoch derives from ``seed``."""
        raise TypeError(f"{type(self).__name__} is an axis, not an input format")
