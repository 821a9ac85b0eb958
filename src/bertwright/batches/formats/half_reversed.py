"""Sequences in both directions: half of every step is read from the end of the text.

In a reversed sequence of n positions, the token at p moves to n - 1 - p and keeps its position id
p, so position ids count down. The relative distance of positions i and j is then
(n - 1 - i) - (n - 1 - j) = -(i - j), the distance of the tokens in the text, as in the released
code of Yang et al. 2019. With i - j, the neighbours of every token would be on the wrong side.

A bidirectional encoder therefore computes the same hidden states for a reversed sequence, except
that the special tokens change sides. The memory differs: in sequential formats it holds the text
that follows.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator

from bertwright.batches.arrays import BoolArray, Int32Array, IntArray
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.formats.packed import Contiguous, Packed
from bertwright.batches.formats.pairs import TextPair
from bertwright.batches.formats.sentences import DocSentences, FullSentences
from bertwright.batches.token_info import DataRequirement, Relation, SequenceBatch
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


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
        if not isinstance(of, Contiguous | Packed | FullSentences | DocSentences | TextPair):
            raise ValueError(
                f"is {of.kind}, which cannot be reversed: choose contiguous, packed, "  # type: ignore[attr-defined]
                f"full-sentences, doc-sentences, segment-pair or sentence-pair"
            )
        return of.model_copy(update={"length": info.data.get("length", 128)})

    @property
    def is_sequential(self) -> bool:
        return self.of.is_sequential

    @property
    def is_backward(self) -> bool:
        return self.of.is_backward

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
        # All forward sequences come first, then all reversed ones.
        forward = self.of.model_copy(update={"length": self.length}).plan(split, specials, seed)
        text_start = 0 if self.of.is_sequential else 1

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            direction, index_forward = np.divmod(index, forward.num_sequences)
            batch = forward.sequences(index_forward, epoch)
            return reverse_sequences(batch, direction == 1, text_start)

        return SequenceSource(2 * forward.num_sequences, sequences)


def reverse_sequences(
    batch: SequenceBatch, is_backward: BoolArray, text_start: int
) -> SequenceBatch:
    """Reverse the sequences where ``is_backward`` (B,); each holds one text, padded at the end.

    The first and last ``text_start`` tokens keep their positions.
    """
    columns, is_real, token_info = (
        np.arange(batch.token_ids.shape[1]),
        batch.is_real,
        batch.token_info,
    )
    is_backward, end = is_backward[:, None], is_real.sum(axis=1, keepdims=True)
    position_ids = np.where(is_backward & is_real, end - 1 - columns, columns)
    is_inside = (columns >= text_start) & (columns < end - text_start)
    source = np.where(is_inside, position_ids, columns)

    def reordered(values: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(values, source, axis=1)

    def renumbered(unit_ids: Int32Array) -> Int32Array:
        last = unit_ids.max(axis=1, keepdims=True)
        return np.where(is_backward & (unit_ids >= 0), last - unit_ids, unit_ids)

    arrays = {**token_info.gather(source).arrays()}
    if token_info.document_ids is not None:
        arrays["document_ids"] = token_info.document_ids
    arrays |= {n: renumbered(arrays[n]) for n in ("word_ids", "sentence_ids") if n in arrays}
    if token_info.segment_ids is not None:
        # Segment 0 is the text that now comes first, with the special token after it.
        num_first = ((token_info.segment_ids == 1) & ~batch.is_special).sum(axis=1, keepdims=True)
        is_second = ((columns > num_first + 1) & is_real).astype(np.int32)
        arrays["segment_ids"] = np.where(is_backward, is_second, token_info.segment_ids)
    if token_info.language_ids is not None:
        arrays["language_ids"] = np.take_along_axis(token_info.language_ids, position_ids, axis=1)
    arrays["position_ids"] = position_ids.astype(np.int32)
    arrays["is_backward"] = np.broadcast_to(is_backward, is_real.shape).copy()
    is_special, boundary = reordered(batch.is_special), batch.is_truncation_boundary
    if boundary is not None:
        boundary = np.take_along_axis(boundary, position_ids, axis=1)
        # A separator between documents may come right after the first token.
        boundary[:, 1] |= is_backward[:, 0] & is_special[:, 1]
    return replace(
        batch,
        token_ids=reordered(batch.token_ids),
        token_info=replace(token_info, **arrays),
        is_special=is_special,
        is_truncation_boundary=boundary,
    )
