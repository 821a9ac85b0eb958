"""The input format axis, and the sequence source that a format returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.reversal import reverse_sequences
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
    def num_remembered(self) -> int | None:
        """Return the number of positions, from the first, that enter the memory; None for all."""
        return None

    @property
    def num_segments(self) -> int:
        """Return the number of different segment ids."""
        return 2

    @property
    def ends_with_start_token(self) -> bool:
        """Return whether the start token, [CLS], is the last token of a sequence, not the first."""
        return False

    @property
    def text_start(self) -> int:
        """Return the position of the first token of a text with special tokens."""
        return 0 if self.ends_with_start_token else 1

    def add_special_tokens(self, token_ids: Sequence[int], specials: SpecialTokens) -> list[int]:
        """Return [CLS] text [SEP], text [SEP] [CLS], or what surrounds documents in training."""
        if self.ends_with_start_token:
            return [*token_ids, specials.end, specials.start]
        return [self.start_token(specials), *token_ids, specials.end]

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
    def num_isolated_texts(self) -> int:
        """Return the number of texts of a sequence that do not attend to each other; 1 mostly."""
        return 1

    @property
    def max_text_length(self) -> int:
        """Return the maximum number of positions of a text, special tokens included."""
        return self.length

    @property
    def needs_dropout(self) -> bool:
        """Return whether copies of a text in a sequence differ by dropout alone."""
        return False

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

    def plan_both_directions(
        self, split: Split, specials: SpecialTokens, seed: int
    ) -> SequenceSource:
        """Return all sequences of :meth:`plan`, then the same sequences reversed."""
        forward = self.plan(split, specials, seed)
        text_start = 0 if self.is_sequential else 1

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            direction, index_forward = np.divmod(index, forward.num_sequences)
            batch = forward.sequences(index_forward, epoch)
            return reverse_sequences(batch, direction == 1, text_start)

        return SequenceSource(2 * forward.num_sequences, sequences)
