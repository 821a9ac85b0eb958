"""Selection of short spans with unmasked text around each (Yang et al. 2019)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.masking.selection import (
    MaskSelection,
    SelectedPositions,
    is_unspaced,
    part_numbers,
    shuffle_candidates,
    starts_unit,
)
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng


class SpacedSpanSelection(MaskSelection):
    """Spans of n tokens, each within a context of ``context`` times n unmasked tokens.

    n is at most ``longest``, with a probability proportional to 1/n. A span begins at the first
    start of a word after a random part of its context; its rest follows it, and then the next span
    with its context, in the order of the text. Single random tokens fill the budget. Each of
    ``parts`` equal parts of a sequence has an equal share of the budget. Source: the released code
    of Yang et al. 2019, section 2.3.
    """

    kind: Literal["spaced-spans"] = "spaced-spans"
    longest: int = Field(default=5, ge=1, le=30)
    context: int = Field(default=6, ge=1, le=1_024)
    parts: int = Field(default=1, ge=1, le=64)

    def select_positions(
        self,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
        rng: CounterRng,
        num_to_mask: IntArray,
        num_slots: int,
    ) -> SelectedPositions:
        length = batch.token_ids.shape[1]
        columns = np.broadcast_to(np.arange(length), batch.token_ids.shape)
        is_backward = batch.token_info.is_backward
        in_text_order = (
            columns if is_backward is None else np.where(is_backward, columns[:, ::-1], columns)
        )
        part = np.take_along_axis(
            np.broadcast_to(part_numbers(length, self.parts), columns.shape), in_text_order, axis=1
        )
        is_special = np.take_along_axis(batch.is_special, in_text_order, axis=1)
        is_start = self._span_starts(batch, in_text_order) & ~is_special
        unit_ids = np.full(columns.shape, -1, np.int64)
        for number in range(self.parts):
            # The first parts have the remainder of the budget.
            budget = (num_to_mask + self.parts - 1 - number) // self.parts
            is_inside, part_rng = part == number, rng.fold_in(f"part {number}")
            spans = self._draw_spans(is_inside, is_start, budget, part_rng)
            unit_ids = np.where((spans >= 0) & ~is_special, spans, unit_ids)
            remaining = budget - ((unit_ids >= 0) & is_inside).sum(axis=1, keepdims=True)
            unit_ids = _fill(unit_ids, is_inside & ~is_special, remaining, part_rng)
        # A part may have less text than its share, for example if it is padding.
        remaining = num_to_mask - (unit_ids >= 0).sum(axis=1, keepdims=True)
        unit_ids = _fill(unit_ids, ~is_special, remaining, rng)
        in_reading_order = np.take_along_axis(unit_ids, in_text_order, axis=1)
        return SelectedPositions.from_unit_ids(in_reading_order, num_slots)

    def _span_starts(self, batch: SequenceBatch, in_text_order: IntArray) -> BoolArray:
        """Return where a word begins, (B, L) in text order; everywhere without word boundaries."""
        word_ids = batch.token_info.word_ids
        if word_ids is None:
            return np.ones(batch.token_ids.shape, np.bool_)
        is_start = starts_unit(np.take_along_axis(word_ids, in_text_order, axis=1))
        is_special = np.take_along_axis(batch.is_special, in_text_order, axis=1)
        return is_start | is_unspaced(is_start, is_special)

    def _draw_spans(
        self, is_inside: BoolArray, is_start: BoolArray, budget: IntArray, rng: CounterRng
    ) -> IntArray:
        """Return the start of the span of every token, (B, L); -1 for tokens outside all spans.

        Spans are in the part ``is_inside`` (B, L), and have at most ``budget`` (B, 1) tokens.
        """
        length = is_inside.shape[1]
        columns = np.arange(length)
        probabilities = 1 / np.arange(1, self.longest + 1)
        cumulative = np.cumsum(probabilities / probabilities.sum())[:-1]
        next_start = np.where(is_start & is_inside, columns, length)
        next_start = np.minimum.accumulate(next_start[:, ::-1], axis=1)[:, ::-1]
        stop = length - is_inside[:, ::-1].argmax(axis=1)[:, None]
        position = is_inside.argmax(axis=1)[:, None]
        spans = np.full(is_inside.shape, -1, np.int64)
        remaining, is_open = budget, np.ones_like(budget, np.bool_)
        turn = 0
        while (is_open := is_open & (remaining > 0) & (position < stop)).any():
            die = rng.fold_in("length").uniform(np.full_like(position, turn))
            size = np.minimum(1 + np.searchsorted(cumulative, die, side="right"), remaining)
            context = self.context * size
            before = rng.fold_in("front").integers(
                np.maximum(context, 1), np.full_like(position, turn)
            )
            earliest = np.minimum(position + before, length - 1)
            start = np.take_along_axis(next_start, earliest, axis=1)
            end = start + size
            is_open &= (position + before < stop) & (end < stop)
            is_taken = is_open & (columns >= start) & (columns < end)
            spans = np.where(is_taken, start, spans)
            remaining = remaining - is_taken.sum(axis=1, keepdims=True)
            position = np.where(is_open, end + context - before, position)
            turn += 1
        return spans


def _fill(
    unit_ids: IntArray, is_candidate: BoolArray, num_tokens: IntArray, rng: CounterRng
) -> IntArray:
    """Select up to ``num_tokens`` (B, 1) more single tokens, each its own unit."""
    columns = np.arange(unit_ids.shape[1])
    order, num_free = shuffle_candidates(is_candidate & (unit_ids < 0), rng.fold_in("single"))
    is_taken = np.zeros(unit_ids.shape, np.bool_)
    np.put_along_axis(is_taken, order, columns < np.minimum(num_tokens, num_free), axis=1)
    return np.where(is_taken, columns, unit_ids)
