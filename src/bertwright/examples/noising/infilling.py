"""Spans of words become one mask each, sentences change places, and the decoder is asked for the
whole text (Lewis et al. 2020, section 2.2)."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.noising.noising import (
    Noising,
    Places,
    Targets,
    rearranged,
    require_plain,
)
from bertwright.examples.questions import Question
from bertwright.examples.selection.choosing import in_hash_order
from bertwright.examples.selection.unspaced import unspaced
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


class Infilling(Noising):
    """``rate`` of the words stand in spans whose lengths follow a Poisson law of the mean ``mean``;
    a span of no words puts a mask between two. ``permuted`` shuffles the sentences first.

    The spans and the words that stay lie in a random order: spans may touch, none overlap. The last
    one is cut where the budget ends. In text without spaces tokens count as words.
    """

    kind: Literal["infilling"] = "infilling"
    begins: Literal["pad", "start", "end", "mask"] = "end"
    rate: float = Field(default=0.3, gt=0.0, lt=1.0)
    mean: float = Field(default=3.0, ge=1.0, le=30.0)
    permuted: bool = True

    @property
    def masking_rate(self) -> float:
        return self.rate

    def targets(self, length: int) -> int:
        return length

    def noised(
        self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float
    ) -> tuple[Rows, Question]:
        require_plain(rows)
        num_rows, length = rows.pieces.shape
        column = np.arange(length)
        order = np.broadcast_to(column, rows.pieces.shape).astype(np.int64)
        if self.permuted:
            order = _by_sentence(rows, draw.named("sentences"))
        begins = _word_starts(rows, order)
        text = ~rows.special
        word = np.where(text, np.cumsum(begins, axis=1) - 1, -1)
        covered, heads, inserted = self._spans(begins.sum(axis=1), length, draw)

        rank = np.maximum(word, 0)
        hidden = text & np.take_along_axis(covered, rank, 1)
        head = hidden & begins & np.take_along_axis(heads, rank, 1)
        before = np.where(begins, np.take_along_axis(inserted[:, :-1], rank, 1), 0)
        behind = column == length - 1 - np.argmax(text[:, ::-1], axis=1)[:, None]
        after = np.where(
            behind & text, inserted[np.arange(num_rows), word.max(axis=1) + 1][:, None], 0
        )
        kept = rows.real & (~hidden | head)
        at = np.cumsum(kept + before, axis=1) + np.cumsum(after, axis=1) - after - 1
        total = np.minimum((kept + before + after).sum(axis=1, keepdims=True), length)

        pieces = np.take_along_axis(rows.pieces, order, 1)
        shown = np.where(column < total, vocabulary.specials.mask, vocabulary.specials.pad)
        source = np.zeros(shown.shape, np.int64)
        row, place = np.nonzero(kept & (at < length))
        to = at[row, place]
        shown[row, to] = np.where(head[row, place], vocabulary.specials.mask, pieces[row, place])
        source[row, to] = order[row, place]
        where = np.minimum(column, total - 1)
        targets = Targets(rows.pieces.astype(np.int64), rows.real, where, skipped=rows.spelled)
        noised = rearranged(rows, shown, source, column < total)
        counted = int(hidden.sum()), int(rows.real.sum())
        return noised, self.ask(targets, noised, vocabulary, counted)

    def _spans(
        self, num_words: Places, length: int, draw: Draw
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Places]:
        """Of every word (B, L): whether it stands in a span, and whether as its first; and how many
        masks come before it (B, L + 1)."""
        words = num_words[:, None]
        budget = np.minimum(np.maximum(np.rint(self.rate * words), 1), words).astype(np.int64)
        most = int(budget.max(initial=1)) + 8
        drawn = draw.named("lengths").uniform(np.arange(most))
        lengths = np.searchsorted(_poisson(self.mean), drawn, side="right").astype(np.int64)
        ends = np.minimum(np.cumsum(lengths, axis=1), budget)
        lengths = np.diff(ends, axis=1, prepend=0)
        is_span = np.pad(ends, ((0, 0), (1, 0)))[:, :-1] < budget
        number = is_span.sum(axis=1, keepdims=True)
        items = words - ends[:, -1:] + number

        slots = np.arange(length + most)
        ranked, _ = in_hash_order(np.broadcast_to(slots < items, (len(words), len(slots))), draw)
        spans = np.zeros((len(words), len(slots)), np.bool_)
        row, nth = np.nonzero(np.arange(most) < number)
        spans[row, ranked[row, nth]] = True
        which = np.maximum(np.cumsum(spans, axis=1) - 1, 0)
        size = np.where(spans, np.take_along_axis(lengths, np.minimum(which, most - 1), 1), 1)
        start = np.cumsum(size, axis=1) - size

        heads = np.zeros((len(words), length), np.bool_)
        change = np.zeros((len(words), length + 1), np.int64)
        inserted = np.zeros_like(change)
        row, slot = np.nonzero(spans & (size > 0))
        heads[row, start[row, slot]] = True
        np.add.at(change, (row, start[row, slot]), 1)
        np.add.at(change, (row, start[row, slot] + size[row, slot]), -1)
        covered = np.cumsum(change, axis=1)[:, :-1] > 0
        row, slot = np.nonzero(spans & (size == 0))
        np.add.at(inserted, (row, start[row, slot]), 1)
        return covered, heads, inserted


def _poisson(mean: float) -> NDArray[np.float64]:
    """The chances of at most 0, 1, 2, ... of what is ``mean`` on average."""
    n = np.arange(64)
    logs = n * math.log(mean) - mean - np.array([math.lgamma(k + 1) for k in n])
    return np.cumsum(np.exp(logs))[:-1]


def _by_sentence(rows: Rows, draw: Draw) -> Places:
    """The place (B, L) whose piece comes to stand at each place: sentences in a random order,
    special tokens where they were."""
    sentence = rows.coordinates.sentence
    if sentence is None:
        raise UserError("shuffling sentences needs rows that know where they begin")
    length = sentence.shape[1]
    turn = (draw.bits(np.maximum(sentence, 0)) >> np.uint64(1)).astype(np.int64)
    column = np.arange(length)
    text = ~rows.special
    by_turn = np.lexsort((np.broadcast_to(column, turn.shape), turn, ~text), axis=1)
    order = np.broadcast_to(column, turn.shape).astype(np.int64)
    rank = np.cumsum(text, axis=1) - 1
    return np.where(text, np.take_along_axis(by_turn, np.maximum(rank, 0), 1), order)


def _word_starts(rows: Rows, order: Places) -> NDArray[np.bool_]:
    """Return where words begin (B, L), the tokens being in another order."""
    word = rows.coordinates.word
    if word is None:
        raise UserError("infilling needs rows that know where words begin")
    moved = np.take_along_axis(word, order, 1)
    begins = np.ones(word.shape, np.bool_)
    begins[:, 1:] = (moved[:, 1:] != moved[:, :-1]) | rows.special[:, :-1]
    return (begins | unspaced(begins, rows.special)) & ~rows.special
