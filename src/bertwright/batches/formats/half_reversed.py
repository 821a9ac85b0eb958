"""Sequences in both directions: half of every step is read from the end of the text.

A bidirectional encoder computes the same hidden states for a reversed sequence, except that the
special tokens change sides. The memory differs: in sequential formats it holds the text that
follows.
"""

from typing import ClassVar, Literal

from pydantic import ValidationInfo, field_validator

from bertwright.batches.formats.contiguous_pair import ContiguousPair
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.formats.packed import Contiguous, Packed
from bertwright.batches.formats.pairs import TextPair
from bertwright.batches.formats.sentences import DocSentences, FullSentences
from bertwright.batches.token_info import DataRequirement, Relation
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens

_REVERSIBLE = Contiguous | ContiguousPair | Packed | FullSentences | DocSentences | TextPair


class HalfReversed(InputFormat):
    """The sequences of another input format, ``of``, forward and reversed.

    The second half of every step holds the sequences of the first half, reversed (``bi_data`` of
    Yang et al. 2019). Special tokens at the ends of a sequence stay there. In a sequential format
    both halves share the text, and each continues in its direction. With an odd number of sequences
    the forward half has one more. Evaluation data is not reversed.
    """

    kind: Literal["half-reversed"] = "half-reversed"
    of: InputFormat

    num_directions: ClassVar[int] = 2

    @field_validator("of")
    @classmethod
    def _check_single_text(cls, of: InputFormat, info: ValidationInfo) -> InputFormat:
        if of.isolation_setting:
            raise ValueError(
                f"puts several texts into one sequence, which cannot be reversed: set "
                f"{of.isolation_setting} to false"
            )
        if not isinstance(of, _REVERSIBLE):
            raise ValueError(
                f"is {of.kind}, which cannot be reversed: choose contiguous, contiguous-pair, "  # type: ignore[attr-defined]
                f"packed, full-sentences, doc-sentences, segment-pair or sentence-pair"
            )
        return of.model_copy(update={"length": info.data.get("length", 128)})

    @property
    def is_sequential(self) -> bool:
        return self.of.is_sequential

    @property
    def is_backward(self) -> bool:
        return self.of.is_backward

    @property
    def num_remembered(self) -> int | None:
        return self.of.model_copy(update={"length": self.length}).num_remembered

    @property
    def num_segments(self) -> int:
        return self.of.num_segments

    @property
    def ends_with_start_token(self) -> bool:
        return self.of.ends_with_start_token

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return self.of.data_requirements

    @property
    def relations(self) -> frozenset[Relation]:
        return self.of.relations

    @property
    def for_evaluation(self) -> InputFormat:
        return self.of.model_copy(update={"length": self.length}).for_evaluation

    def start_token(self, specials: SpecialTokens) -> int:
        return self.of.start_token(specials)

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        of = self.of.model_copy(update={"length": self.length})
        return of.plan_both_directions(split, specials, seed)
