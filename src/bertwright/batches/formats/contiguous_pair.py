"""Contiguous text with a pair of texts ahead of it (Yang et al. 2019).

The released code reads the text in parallel stretches, in one direction or the other. A sequence is
the next part of its stretch, which the memory keeps, and then a pair that begins right after it:
A ends at a random end of a sentence, and B continues A or comes from elsewhere. The next sequence
begins at the end of the kept part, so the text of the pair is read again.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.batches.arrays import BoolArray, Int32Array, IntArray
from bertwright.batches.formats.arrangement.layout import language_ids_of
from bertwright.batches.formats.arrangement.reversal import UNITS, reverse_numbers
from bertwright.batches.formats.arrangement.text_layout import (
    TextSpans,
    read_text,
    truncate_longest_first,
)
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters, integers, stream_key, uniform
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens

NUM_PAIR_SPECIALS = 3
"""Special tokens of a pair: two [SEP] and [CLS]."""


class ContiguousPair(InputFormat):
    """Contiguous text, then A [SEP] B [SEP] [CLS], without padding (Yang et al. 2019).

    The first ``reused`` part of a sequence is contiguous text, with [SEP] between documents, and
    enters the memory. A follows it, up to a random end of a sentence. B continues A with
    probability ``next``; else it is a random text. The longer of both loses tokens at its end until
    they fill the sequence. Segment ids are 0 up to the end of A, 1 for B and 2 for [CLS].
    """

    kind: Literal["contiguous-pair"] = "contiguous-pair"
    reused: float = Field(default=0.5, gt=0.0, lt=1.0)
    next: float = Field(default=0.5, ge=0.0, le=1.0)

    @property
    def is_sequential(self) -> bool:
        return True

    @property
    def num_remembered(self) -> int:
        return min(int(np.ceil(self.reused * self.length)), self.length - NUM_PAIR_SPECIALS - 2)

    @property
    def num_segments(self) -> int:
        return 3

    @property
    def ends_with_start_token(self) -> bool:
        return True

    def start_token(self, specials: SpecialTokens) -> int:
        return specials.end

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        both = self.plan_both_directions(split, specials, seed)

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            batch = both.sequences(index, epoch)
            return replace(batch, token_info=replace(batch.token_info, is_backward=None))

        return SequenceSource(both.num_sequences // 2, sequences)

    def plan_both_directions(
        self, split: Split, specials: SpecialTokens, seed: int
    ) -> SequenceSource:
        stream = SeparatedStream.of(split)
        num_pair = self.length - self.num_remembered - NUM_PAIR_SPECIALS
        # There is text for a pair on both sides of every kept part.
        num_kept = stream.length - 1 - 2 * num_pair
        if num_kept < self.num_remembered:
            raise UserError(
                f"the {split.name} split holds {split.num_tokens} tokens, too few for one "
                f"sequence of length {self.length}: prepare more text or set a smaller length"
            )
        num_sequences = num_kept // self.num_remembered
        rng_key = stream_key(seed, "assembly", "contiguous-pair")
        samplers = [
            _ContiguousPairSampler(boundaries, self.num_remembered, num_pair, self.next, rng_key)
            for boundaries in (stream.boundaries, stream.length - stream.boundaries[::-1])
        ]
        first = 1 + num_pair

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            index, epochs = np.broadcast_arrays(index, np.asarray(epoch))
            is_backward = index >= num_sequences
            starts = first + self.num_remembered * (index % num_sequences)
            # Seen from the end of the text, the kept part begins at its last token.
            starts = np.where(is_backward, stream.length - starts - self.num_remembered, starts)
            positions = np.empty((len(index), self.length), np.int64)
            segment_ids = np.empty((len(index), self.length), np.int32)
            for sampler, rows in zip(samplers, (~is_backward, is_backward), strict=True):
                positions[rows], segment_ids[rows] = sampler.lay_out(
                    starts[rows], index[rows], epochs[rows]
                )
            mirrored = np.where(positions < 0, -1, stream.length - 1 - positions)
            positions = np.where(is_backward[:, None], mirrored, positions)
            return _read(stream, specials, positions, segment_ids, is_backward[:, None])

        return SequenceSource(2 * num_sequences, sequences)


@dataclass(frozen=True, slots=True, eq=False)
class SeparatedStream:
    """The token stream of a split with a separator before every document.

    - ``separators``: (D,) positions of the separators
    - ``boundaries``: positions at which a text may begin or end, ascending; the last is ``length``
    """

    split: Split
    separators: IntArray
    boundaries: IntArray
    length: int

    @staticmethod
    def of(split: Split) -> "SeparatedStream":
        """Return the stream of a split."""
        document_starts = np.asarray(split.document_starts[:-1], np.int64)
        separators = document_starts + np.arange(len(document_starts))
        sentences = np.asarray(split.sentence_starts[:-1], np.int64)
        sentences = sentences + np.searchsorted(document_starts, sentences, side="right")
        length = split.num_tokens + len(document_starts)
        boundaries = np.unique(np.concatenate([separators, sentences, [length]]))
        return SeparatedStream(split, separators, boundaries, length)

    def documents(self, positions: IntArray) -> IntArray:
        """Return the document of each position; a separator belongs to the document after it."""
        return np.searchsorted(self.separators, np.maximum(positions, 0), side="right") - 1

    def token_positions(self, positions: IntArray) -> IntArray:
        """Return the position of each token in the split; -1 for separators and for -1."""
        documents = self.documents(positions)
        is_token = (positions >= 0) & (self.separators[documents] != positions)
        return np.where(is_token, positions - documents - 1, -1)


@dataclass(frozen=True, slots=True, eq=False)
class _ContiguousPairSampler:
    """A sampler of sequences in one reading direction, in positions along it."""

    boundaries: IntArray
    num_kept: int
    num_pair: int
    next_fraction: float
    rng_key: int

    def lay_out(
        self, starts: IntArray, index: IntArray, epoch: IntArray
    ) -> tuple[IntArray, Int32Array]:
        """Return stream positions, -1 for special tokens, and segment ids, (B, L) each."""
        first, second = self._sample_pair(starts + self.num_kept, index, epoch)
        offset = np.arange(self.num_kept + self.num_pair + NUM_PAIR_SPECIALS)
        num_first = self.num_kept + first.lengths[:, None]
        offset_in_second = offset - num_first - 1
        is_second = (offset_in_second >= 0) & (offset_in_second < second.lengths[:, None])
        positions = np.where(offset < num_first, starts[:, None] + offset, -1)
        positions = np.where(is_second, second.starts[:, None] + offset_in_second, positions)
        segment_ids = (offset > num_first).astype(np.int32)
        segment_ids[:, -1] = 2
        return positions, segment_ids

    def _sample_pair(
        self, starts: IntArray, index: IntArray, epoch: IntArray
    ) -> tuple[TextSpans, TextSpans]:
        """Return A, which begins at ``starts`` (B,), and B; together they have ``num_pair``."""
        low = np.searchsorted(self.boundaries, starts, side="right")
        high = np.searchsorted(self.boundaries, starts + self.num_pair, side="left")
        end, num_cuts = self.boundaries[high], high - low
        cut = integers(stream_key(self.rng_key, "part"), np.maximum(num_cuts, 1), epoch, index)
        ends = self.boundaries[low + cut]
        coin = uniform(stream_key(self.rng_key, "relation"), epoch, index)
        is_next = (coin < self.next_fraction) & (num_cuts > 0)
        first_lengths = ends - starts
        second = self._random_text(np.maximum(self.num_pair - first_lengths, 1), index, epoch)
        second = TextSpans(ends, end - ends).where(is_next, second)
        lengths = truncate_longest_first(first_lengths, second.lengths, self.num_pair)
        return TextSpans(starts, lengths[0]), TextSpans(second.starts, lengths[1])

    def _random_text(self, min_lengths: IntArray, index: IntArray, epoch: IntArray) -> TextSpans:
        """Return random whole sentences (B,) of at least these lengths."""
        bound = self.boundaries[-1] - min_lengths
        starts = integers(stream_key(self.rng_key, "sentence"), bound, epoch, index)
        first = np.searchsorted(self.boundaries, starts, side="right") - 1
        last = np.searchsorted(self.boundaries, starts + min_lengths, side="left")
        return TextSpans(self.boundaries[first], self.boundaries[last] - self.boundaries[first])


def _read(
    stream: SeparatedStream,
    specials: SpecialTokens,
    positions: IntArray,
    segment_ids: Int32Array,
    is_backward: BoolArray,
) -> SequenceBatch:
    """Return the sequences with these stream positions (B, L), where -1 is a special token."""
    columns = np.broadcast_to(np.arange(positions.shape[1]), positions.shape)
    in_text_order = np.where(is_backward, columns[:, ::-1], columns)

    def reorder(values: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(values, in_text_order, axis=1)

    in_split = stream.token_positions(reorder(positions))
    is_text_start = np.diff(in_split, axis=1, prepend=-2) != 1
    tokens, token_info = read_text(stream.split, in_split, is_text_start)
    arrays = {name: reorder(values) for name, values in token_info.arrays().items()}
    arrays |= {n: reverse_numbers(arrays[n], is_backward) for n in UNITS}
    is_text = stream.token_positions(positions) >= 0
    token_ids = np.where(is_text, reorder(tokens), np.int32(specials.end))
    token_ids[:, -1] = specials.start
    if stream.split.language_ids is not None:
        nearest = np.maximum.accumulate(np.where(positions >= 0, columns, 0), axis=1)
        documents = stream.documents(np.take_along_axis(positions, nearest, axis=1))
        arrays["language_ids"] = language_ids_of(stream.split, documents)
    token_info = TokenInfoArrays(
        **arrays,
        position_ids=in_text_order.astype(np.int32),
        segment_ids=segment_ids,
        document_ids=np.zeros_like(segment_ids),
        is_backward=np.broadcast_to(is_backward, positions.shape).copy(),
    )
    return SequenceBatch(token_ids, token_info, ~is_text, is_truncation_boundary=positions < 0)
