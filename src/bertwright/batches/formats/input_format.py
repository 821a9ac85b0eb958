"""The input format axis, and the sequence source that every format plans."""

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
    """Sequences by index; each is the same in every process, order and batch.

    ``num_sequences`` is their number in one epoch. ``sequences(index, epoch)`` returns sequences
    ``index`` (B,), in [0, num_sequences), in ``epoch``, an int or (B,): a pure function of (seed,
    epoch, index).
    """

    num_sequences: int
    sequences: Callable[[IntArray, Counters], SequenceBatch]


class InputFormat(Config):
    """An input format; ``length`` is the length of every sequence, padding included."""

    length: int = Field(default=128, ge=8, le=1 << 20)

    num_directions: ClassVar[int] = 1
    """Number of reading directions; a step is split into equal parts, one for each direction."""

    @property
    def is_sequential(self) -> bool:
        """True if sequence i of a step continues sequence i of the step before."""
        return False

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        """Data or annotations that it needs and not every data set has."""
        return frozenset()

    @property
    def relations(self) -> frozenset[Relation]:
        """Possible relations between the texts of a sequence; empty for single texts."""
        return frozenset()

    @property
    def isolation_setting(self) -> str | None:
        """The setting that makes a sequence hold several isolated texts; None if it holds one."""
        return None

    @property
    def for_evaluation(self) -> "InputFormat":
        """The input format for evaluation data."""
        return self

    def start_token(self, specials: SpecialTokens) -> int:
        """Return the token before a document that begins a sequence."""
        return specials.start

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        """Cut a split into sequences; per-epoch randomness derives from ``seed``."""
        raise TypeError(f"{type(self).__name__} is an axis, not an input format")
