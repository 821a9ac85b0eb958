"""Selection of spans of words or tokens.

Starts and lengths of spans and n-grams are drawn repeatedly until the budget of every sequence is
spent, for all sequences at once.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import BoolArray, FloatArray, IntArray
from bertwright.batches.masking.selection import (
    MaskSelection,
    SelectedPositions,
    fill_remaining_budget,
    is_unspaced,
    shuffle_candidates,
    starts_unit,
)
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng


class ContiguousSelection(MaskSelection):
    """A base class of span and n-gram selection.

    A span has n words, 1 <= n <= ``longest``. The probability of n is proportional to
    (1 - ``stop``)^n (``geometric``, renormalised, not clipped), proportional to 1/n (``harmonic``),
    or constant (``uniform``). With ``of: tokens``, and in text without spaces, n counts tokens.
    """

    law: Literal["geometric", "harmonic", "uniform"] = "geometric"
    stop: float = Field(default=0.2, gt=0.0, lt=1.0)
    longest: int = Field(default=10, ge=1, le=30)
    of: Literal["words", "tokens"] = "words"

    @property
    def length_probabilities(self) -> FloatArray:
        """Return the probabilities of the lengths from 1 to ``longest``, (longest,)."""
        n = np.arange(1, self.longest + 1, dtype=np.float64)
        shape = {"geometric": (1 - self.stop) ** n, "harmonic": 1 / n, "uniform": np.ones_like(n)}
        return shape[self.law] / shape[self.law].sum()

    def select_positions(
        self,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
        rng: CounterRng,
        num_to_mask: IntArray,
        num_slots: int,
    ) -> SelectedPositions:
        word_starts, word_ends = self._word_bounds(batch)
        column = np.arange(batch.token_ids.shape[1])
        order, num_candidates = shuffle_candidates(
            self._start_candidates(batch, word_starts == column), rng.fold_in("begin")
        )
        cumulative = np.cumsum(self.length_probabilities)[:-1]
        unit_ids = np.full(batch.token_ids.shape, -1, np.int64)
        remaining = num_to_mask
        for turn in range(int(num_candidates.max(initial=0))):
            anchor = order[:, turn : turn + 1]
            start = np.take_along_axis(word_starts, anchor, 1)
            length_index = np.searchsorted(
                cumulative, rng.fold_in("length").uniform(anchor), side="right"
            )
            possible_ends = self._possible_ends(start, word_ends, batch.is_special)
            end = self._span_end(start, possible_ends, length_index, unit_ids >= 0, remaining)
            is_free = (column >= start) & (column < end) & (unit_ids < 0)
            is_free &= (turn < num_candidates) & (np.take_along_axis(unit_ids, anchor, 1) < 0)
            is_taken = is_free & (np.cumsum(is_free, axis=1) <= remaining)
            unit_ids = np.where(is_taken, start, unit_ids)
            remaining = remaining - is_taken.sum(axis=1, keepdims=True)
            if not remaining.any():
                break
        unit_ids = fill_remaining_budget(
            self._merge_spans(unit_ids, column), (), batch, rng, num_to_mask
        )
        return SelectedPositions.from_unit_ids(unit_ids, num_slots)

    def _start_candidates(self, batch: SequenceBatch, is_word_start: BoolArray) -> BoolArray:
        """Return the positions (B, L) from which the start of a span is drawn uniformly."""
        return ~batch.is_special

    def _span_end(
        self,
        starts: IntArray,
        ends: list[IntArray],
        length_index: IntArray,
        is_masked: BoolArray,
        remaining: IntArray,
    ) -> IntArray:
        """Return the end of the span from ``starts``; ``ends`` are those by length, (B, 1) each."""
        return np.choose(length_index, ends)

    def _merge_spans(self, unit_ids: IntArray, columns: IntArray) -> IntArray:
        """Return the unit id (B, L) of each selected position; -1 elsewhere."""
        return unit_ids

    def _word_bounds(self, batch: SequenceBatch) -> tuple[IntArray, IntArray]:
        """Return the start of each token's word and the first position after it, (B, L) each."""
        length = batch.token_ids.shape[1]
        column = np.broadcast_to(np.arange(length), batch.token_ids.shape)
        if self.of == "tokens":
            return column, column + 1
        word_ids = batch.token_info.word_ids
        if word_ids is None:
            raise UserError("spans of words need an input format with word boundaries")
        is_word_start = starts_unit(word_ids)
        is_word_start[:, 1:] |= batch.is_special[:, 1:] | batch.is_special[:, :-1]
        is_word_start |= is_unspaced(is_word_start, batch.is_special)
        starts = np.maximum.accumulate(np.where(is_word_start, column, 0), axis=1)
        ends = np.full(word_ids.shape, length, np.int64)
        ends[:, :-1] = np.where(is_word_start, column, length)[:, 1:]
        return starts, np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]

    def _possible_ends(
        self, starts: IntArray, word_ends: IntArray, is_special: BoolArray
    ) -> list[IntArray]:
        """Return the ends (B, 1) of spans of 1 to ``longest`` words, up to a special token."""
        last_column = is_special.shape[1] - 1
        ends = [np.take_along_axis(word_ends, starts, 1)]
        while len(ends) < self.longest:
            end = ends[-1]
            next_word = np.minimum(end, last_column)
            is_last = (end > last_column) | np.take_along_axis(is_special, next_word, 1)
            ends.append(np.where(is_last, end, np.take_along_axis(word_ends, next_word, 1)))
        return ends


class SpanSelection(ContiguousSelection):
    """Spans that start at the word of a random token (Joshi et al. 2019, section 3.1).

    The last span is truncated to the budget, even within a word. If ``merged``, adjacent spans
    become one.
    """

    kind: Literal["spans"] = "spans"
    merged: bool = True

    def _merge_spans(self, unit_ids: IntArray, columns: IntArray) -> IntArray:
        if not self.merged:
            return unit_ids
        is_masked = unit_ids >= 0
        is_span_start = is_masked & starts_unit(is_masked.astype(np.int8))
        span_ids = np.maximum.accumulate(np.where(is_span_start, columns, 0), axis=1)
        return np.where(is_masked, span_ids, -1)


class NGramSelection(ContiguousSelection):
    """Spans of n whole words from a random word (Lan et al. 2020, section 4.1).

    A span that exceeds the budget or overlaps another is shortened to the words that fit. If more
    than a tenth of the budget remains, single tokens fill it.
    """

    kind: Literal["n-grams"] = "n-grams"
    law: Literal["geometric", "harmonic", "uniform"] = "harmonic"
    longest: int = Field(default=3, ge=1, le=30)

    def _start_candidates(self, batch: SequenceBatch, is_word_start: BoolArray) -> BoolArray:
        return is_word_start & ~batch.is_special

    def _span_end(
        self,
        starts: IntArray,
        ends: list[IntArray],
        length_index: IntArray,
        is_masked: BoolArray,
        remaining: IntArray,
    ) -> IntArray:
        covered = np.pad(np.cumsum(is_masked, axis=1), ((0, 0), (1, 0)))
        masked_before = np.take_along_axis(covered, starts, 1)
        result = starts
        for n, end in enumerate(ends):
            fits = (end - starts <= remaining) & (
                np.take_along_axis(covered, end, 1) == masked_before
            )
            result = np.where(fits & (n <= length_index), end, result)
        return result


class PartitionSelection(MaskSelection):
    """Spans of ``mean`` tokens on average (T5); special tokens inside a span stay."""

    kind: Literal["partition"] = "partition"
    mean: float = Field(default=3.0, ge=1.0, le=1_024)

    def num_spans(self, num_masked: int) -> int:
        """Return the number of spans for ``num_masked`` tokens."""
        return max(1, round(num_masked / self.mean))

    def select_positions(
        self,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
        rng: CounterRng,
        num_to_mask: IntArray,
        num_slots: int,
    ) -> SelectedPositions:
        length = batch.token_ids.shape[1]
        is_text = ~batch.is_special
        num_text = is_text.sum(axis=1, keepdims=True)
        num_masked = np.clip(np.minimum(num_to_mask, num_text - 1), 0, None)
        num_spans = np.clip(np.rint(num_masked / self.mean).astype(np.int64), 1, None)
        num_spans = np.minimum(num_spans, np.minimum(num_masked, num_text - num_masked))
        span_ids = _random_segments(num_masked, num_spans, length, rng.fold_in("chosen"))
        gap_ids = _random_segments(num_text - num_masked, num_spans, length, rng.fold_in("between"))
        # A masked token comes after all earlier masked tokens and all gaps up to its span.
        widths = np.zeros((len(is_text), length + 1), np.int64)
        np.add.at(
            widths, (np.arange(len(is_text))[:, None], np.where(gap_ids >= 0, gap_ids, length)), 1
        )
        num_before = np.cumsum(widths[:, :-1], axis=1)
        sequence, nth = np.nonzero(span_ids >= 0)
        rank = nth + num_before[sequence, span_ids[sequence, nth]]
        text_columns = np.argsort(~is_text, axis=1, kind="stable")
        unit_ids = np.full(is_text.shape, -1, np.int64)
        unit_ids[sequence, text_columns[sequence, rank]] = span_ids[sequence, nth]
        return SelectedPositions.from_unit_ids(unit_ids, num_slots)


def _random_segments(
    counts: IntArray, num_segments: IntArray, length: int, rng: CounterRng
) -> IntArray:
    """Split ``counts`` (B, 1) items at random into ``num_segments`` (B, 1) segments.

    Return the segment of each item, (B, L); -1 beyond the last item.
    """
    column = np.arange(length)
    is_boundary = np.broadcast_to((column > 0) & (column < counts), (len(counts), length))
    order, _ = shuffle_candidates(is_boundary, rng)
    starts = np.zeros(is_boundary.shape, np.int64)
    np.put_along_axis(starts, order, (column < num_segments - 1).astype(np.int64), axis=1)
    return np.where(column < counts, np.cumsum(starts, axis=1), -1)
