"""Text infilling and sentence permutation (Lewis et al. 2020, section 2.2)."""

import math
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import BoolArray, FloatArray, IntArray
from bertwright.batches.masking.selection import is_unspaced, shuffle_candidates, starts_unit
from bertwright.batches.noising.noising import replace_text, require_single_text
from bertwright.batches.noising.whole_text import WholeTextNoising
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng


class Infilling(WholeTextNoising):
    """Each masked span becomes one mask token, and the decoder predicts the whole text.

    The spans cover a fraction ``masking_rate`` of the words. Their lengths are Poisson with mean
    ``mean``; a span of 0 words inserts a mask. Spans lie at random positions; they may touch but do
    not overlap, and the last one is truncated to the budget. ``permuted`` shuffles the sentences
    first. In text without spaces, tokens count as words.
    """

    kind: Literal["infilling"] = "infilling"
    begins: Literal["pad", "start", "end", "mask"] = "end"
    masking_rate: float = Field(default=0.3, gt=0.0, lt=1.0)
    mean: float = Field(default=3.0, ge=1.0, le=30.0)
    permuted: bool = True

    @property
    def mid_training_masking_rate(self) -> float:
        return self.masking_rate

    def add_noise(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> tuple[SequenceBatch, Targets]:
        require_single_text(batch)
        num_sequences, length = batch.token_ids.shape
        column = np.arange(length)
        order = np.broadcast_to(column, batch.token_ids.shape).astype(np.int64)
        if self.permuted:
            order = _shuffle_sentences(batch, rng.fold_in("sentences"))
        is_word_start = _word_starts(batch, order)
        is_text = ~batch.is_special
        word_numbers = np.where(is_text, np.cumsum(is_word_start, axis=1) - 1, -1)
        covered, starts_span, inserted = self._sample_spans(is_word_start.sum(axis=1), length, rng)

        rank = np.maximum(word_numbers, 0)
        is_masked = is_text & np.take_along_axis(covered, rank, 1)
        is_mask_token = is_masked & is_word_start & np.take_along_axis(starts_span, rank, 1)
        before = np.where(is_word_start, np.take_along_axis(inserted[:, :-1], rank, 1), 0)
        is_last_text = column == length - 1 - np.argmax(is_text[:, ::-1], axis=1)[:, None]
        after = np.where(
            is_last_text & is_text,
            inserted[np.arange(num_sequences), word_numbers.max(axis=1) + 1][:, None],
            0,
        )
        is_kept = batch.is_real & (~is_masked | is_mask_token)
        target_columns = np.cumsum(is_kept + before, axis=1) + np.cumsum(after, axis=1) - after - 1
        total = np.minimum((is_kept + before + after).sum(axis=1, keepdims=True), length)

        tokens = np.take_along_axis(batch.token_ids, order, 1)
        token_ids = np.where(column < total, vocabulary.specials.mask, vocabulary.specials.pad)
        source_positions = np.zeros(token_ids.shape, np.int64)
        sequence, position = np.nonzero(is_kept & (target_columns < length))
        target = target_columns[sequence, position]
        token_ids[sequence, target] = np.where(
            is_mask_token[sequence, position], vocabulary.specials.mask, tokens[sequence, position]
        )
        source_positions[sequence, target] = order[sequence, position]
        noised = replace_text(batch, token_ids, source_positions, column < total)
        targets = self.whole_text_targets(batch, noised, vocabulary, int(is_masked.sum()), total)
        return noised, targets

    def _sample_spans(
        self, num_words: IntArray, length: int, rng: CounterRng
    ) -> tuple[BoolArray, BoolArray, IntArray]:
        """Return whether each word is in a span, whether it begins one, and the inserted masks.

        The first two are (B, L). The number of masks inserted before each word is (B, L + 1).
        """
        words = num_words[:, None]
        budget = np.minimum(np.maximum(np.rint(self.masking_rate * words), 1), words).astype(
            np.int64
        )
        max_spans = int(budget.max(initial=1)) + 8
        draws = rng.fold_in("lengths").uniform(np.arange(max_spans))
        lengths = np.searchsorted(_poisson_cdf(self.mean), draws, side="right").astype(np.int64)
        ends = np.minimum(np.cumsum(lengths, axis=1), budget)
        lengths = np.diff(ends, axis=1, prepend=0)
        is_span = np.pad(ends, ((0, 0), (1, 0)))[:, :-1] < budget
        num_spans = is_span.sum(axis=1, keepdims=True)
        num_items = words - ends[:, -1:] + num_spans

        slots = np.arange(length + max_spans)
        ranking, _ = shuffle_candidates(
            np.broadcast_to(slots < num_items, (len(words), len(slots))), rng
        )
        spans = np.zeros((len(words), len(slots)), np.bool_)
        sizes = np.ones(spans.shape, np.int64)
        sequence, nth = np.nonzero(np.arange(max_spans) < num_spans)
        slot = ranking[sequence, nth]
        spans[sequence, slot] = True
        sizes[sequence, slot] = lengths[sequence, nth]
        starts = np.cumsum(sizes, axis=1) - sizes

        starts_span = np.zeros((len(words), length), np.bool_)
        change = np.zeros((len(words), length + 1), np.int64)
        inserted = np.zeros_like(change)
        sequence, slot = np.nonzero(spans & (sizes > 0))
        starts_span[sequence, starts[sequence, slot]] = True
        np.add.at(change, (sequence, starts[sequence, slot]), 1)
        np.add.at(change, (sequence, starts[sequence, slot] + sizes[sequence, slot]), -1)
        covered = np.cumsum(change, axis=1)[:, :-1] > 0
        sequence, slot = np.nonzero(spans & (sizes == 0))
        np.add.at(inserted, (sequence, starts[sequence, slot]), 1)
        return covered, starts_span, inserted


def _poisson_cdf(mean: float) -> FloatArray:
    """Return the Poisson probabilities of at most 0, 1, 2, ... events."""
    n = np.arange(64)
    log_probabilities = n * math.log(mean) - mean - np.array([math.lgamma(k + 1) for k in n])
    return np.cumsum(np.exp(log_probabilities))[:-1]


def _shuffle_sentences(batch: SequenceBatch, rng: CounterRng) -> IntArray:
    """Return the source position (B, L) of each token after shuffling the sentences.

    Special tokens keep their positions.
    """
    sentence_ids = batch.token_info.sentence_ids
    if sentence_ids is None:
        raise UserError("shuffling sentences needs an input format with sentence boundaries")
    length = sentence_ids.shape[1]
    sort_keys = (rng.random_bits(np.maximum(sentence_ids, 0)) >> np.uint64(1)).astype(np.int64)
    column = np.arange(length)
    is_text = ~batch.is_special
    shuffled = np.lexsort((np.broadcast_to(column, sort_keys.shape), sort_keys, ~is_text), axis=1)
    order = np.broadcast_to(column, sort_keys.shape).astype(np.int64)
    rank = np.cumsum(is_text, axis=1) - 1
    return np.where(is_text, np.take_along_axis(shuffled, np.maximum(rank, 0), 1), order)


def _word_starts(batch: SequenceBatch, order: IntArray) -> BoolArray:
    """Return where words begin (B, L) after permuting the tokens by ``order`` (B, L)."""
    word_ids = batch.token_info.word_ids
    if word_ids is None:
        raise UserError("infilling needs an input format with word boundaries")
    is_word_start = starts_unit(np.take_along_axis(word_ids, order, 1))
    is_word_start[:, 1:] |= batch.is_special[:, :-1]
    return (is_word_start | is_unspaced(is_word_start, batch.is_special)) & ~batch.is_special
