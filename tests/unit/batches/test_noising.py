"""Noised text and decoder targets together make up the text."""

import math
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers

from bertwright.batches.formats import DocSentences, FullSentences, TranslationPair
from bertwright.batches.masking import PartitionSelection
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.noising import (
    Deletion,
    Fragment,
    Infilling,
    Noising,
    Sentinels,
    Translation,
)
from bertwright.batches.noising.infilling import _shuffle_sentences
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from numbered_text import (
    CLS,
    FIRST_TOKEN,
    MASK,
    PAD,
    SEP,
    SPECIALS,
    NumberedSplit,
    all_sequences,
    documents,
    plan_text,
)

SIZE = 100_000
VOCABULARY = Vocabulary(SIZE, SPECIALS)
LENGTH = 40


def full_sentences(text, length: int = LENGTH) -> SequenceBatch:
    source = FullSentences(length=length).plan(NumberedSplit.of(text), SPECIALS, 0)
    index = np.arange(source.num_sequences)
    return source.sequences(index, np.zeros_like(index))


def long_sequences(i: int = 300, length: int = 128) -> SequenceBatch:
    sentences = [[[1, 2, 1, 3, 1, 1, 2] for _ in range(4000 * i // 300)]]
    return full_sentences(sentences, length)


def add_noise(
    noising: Noising, batch: SequenceBatch, seed: int = 0
) -> tuple[SequenceBatch, Targets]:
    index = np.arange(len(batch.token_ids))
    return noising.add_noise(batch, VOCABULARY, CounterRng(seed, 0, index), 0.5)


def of_sequence(values: np.ndarray, i: int, num_rows: int) -> np.ndarray:
    return values.reshape(num_rows, -1)[i]


@given(documents, integers(0, 9))
def test_filling_sentinels_restores_the_text(text, seed):
    batch = full_sentences(text)
    noised, targets = add_noise(Sentinels(), batch, seed)
    assert noised.token_ids.shape == batch.token_ids.shape
    for i in range(len(batch.token_ids)):
        target = of_sequence(targets.labels, i, len(batch.token_ids))
        target = target[of_sequence(targets.weights, i, len(batch.token_ids)) > 0]
        sentinels = np.flatnonzero(target >= SIZE - 100)
        assert target[sentinels].tolist() == [SIZE - 1 - n for n in range(len(sentinels))]
        assert sentinels[-1] == len(target) - 2
        assert target[-1] == SEP
        spans = {int(target[at]): target[at + 1 : to] for at, to in pairwise(sentinels)}
        filled: list[int] = []
        for token in noised.token_ids[i][noised.is_real[i]].tolist():
            filled += spans[token].tolist() if token in spans else [token]
        assert sorted(filled) == sorted(batch.token_ids[i][batch.is_real[i]].tolist())
        original = batch.token_ids[i][batch.is_real[i]].tolist()
        if SEP not in original[:-1]:  # a span across the end of a document
            assert filled == original


@given(documents, integers(0, 9))
def test_decoder_inputs_are_the_previous_targets(text, seed):
    batch = full_sentences(text)
    for noising, begin in ((Sentinels(), PAD), (Infilling(), SEP), (Fragment(), MASK)):
        noised, targets = add_noise(noising, batch, seed)
        target, before = (
            v.reshape(len(batch.token_ids), -1)
            for v in (targets.labels, targets.extra_inputs["decoder_input_ids"])
        )
        weight = targets.weights.reshape(target.shape) > 0
        assert target.shape[1] == noising.num_targets(LENGTH)
        assert (before[:, 0] == begin).all()
        assert np.array_equal(before[:, 1:][weight[:, 1:]], target[:, :-1][weight[:, 1:]])
        assert (np.diff(weight.astype(int), axis=1) <= 0).all()
        row, position = np.divmod(targets.positions[targets.weights > 0], LENGTH)
        assert noised.is_real[row, position].all()


def test_partition_spends_the_budget_in_spans_of_the_mean():
    batch = long_sequences()
    selected = PartitionSelection().select(
        batch, VOCABULARY, CounterRng(0, 0, np.arange(len(batch.token_ids))), 0.0
    )
    num_chosen = selected.weights.sum(axis=1).astype(int)
    assert (num_chosen == np.rint(0.15 * batch.is_real.sum(axis=1))).all()
    for positions, unit_ids, i in zip(
        selected.positions, selected.unit_ids, num_chosen, strict=True
    ):
        assert unit_ids[i - 1] + 1 == round(i / 3)
        assert positions[0] > 1
        gaps = np.diff(positions[:i])
        assert np.array_equal(gaps > 1, np.diff(unit_ids[:i]) == 1)


@given(documents, integers(0, 9))
def test_infilling_keeps_order_and_predicts_everything(text, seed):
    batch = full_sentences(text)
    noised, targets = add_noise(Infilling(permuted=False), batch, seed)
    is_special = np.isin(noised.token_ids, [CLS, SEP, PAD]) | (noised.token_ids == MASK)
    assert np.array_equal(noised.is_special | (noised.token_ids == MASK), is_special)
    assert np.array_equal(targets.labels.reshape(batch.token_ids.shape), batch.token_ids)
    assert np.array_equal(targets.weights.reshape(batch.token_ids.shape) > 0, batch.is_real)
    for i in range(len(batch.token_ids)):
        visible = noised.token_ids[i][noised.is_real[i]]
        original = batch.token_ids[i][batch.is_real[i]].tolist()
        visible_tokens = visible[visible != MASK].tolist()
        assert visible[0] == original[0]
        assert len(visible_tokens) < len(original)
        text_kept = [p for p in visible_tokens if p >= FIRST_TOKEN]
        assert text_kept == sorted(text_kept)
        assert set(text_kept) <= set(original)


def test_infilling_masks_at_the_rate_in_spans_of_the_mean():
    batch = long_sequences()
    noised, _ = add_noise(Infilling(permuted=False), batch)
    index = np.arange(len(batch.token_ids))
    words = batch.token_info.word_ids.max(axis=1) + 1
    covered, heads, inserted = Infilling()._sample_spans(words, 128, CounterRng(0, 0, index))
    assert (covered.sum(axis=1) == np.rint(0.3 * words)).all()
    num_masks = heads.sum() + inserted.sum()
    assert (noised.token_ids == MASK).sum() == num_masks
    assert covered.sum() / num_masks == pytest.approx(3.0, rel=0.1)
    assert inserted.sum() / num_masks == pytest.approx(np.exp(-3.0), rel=0.25)
    assert (noised.token_ids == MASK).any(axis=1).all()


def test_spans_of_infilling_have_poisson_lengths_and_lie_anywhere():
    """Lewis et al. 2020, section 2.2; a mask may also be inserted after the last word."""
    num_words = np.full(3000, 60)
    covered, starts, inserted = Infilling(mean=2.0)._sample_spans(
        num_words, 64, CounterRng(0, 0, np.arange(3000))
    )
    assert not covered[:, 60:].any()
    assert not (starts & ~covered).any()
    # A span ends where another begins, or where words are kept.
    is_end = covered & ~np.pad(covered & ~starts, ((0, 0), (0, 1)))[:, 1:]
    lengths = np.nonzero(is_end)[1] - np.nonzero(starts)[1] + 1
    num_spans = np.bincount(lengths, minlength=7)
    num_spans[0] = inserted.sum()
    expected = [math.exp(-2) * 2**n / math.factorial(n) for n in range(7)]
    # The last span of a sequence is truncated.
    assert num_spans[:7] / num_spans.sum() == pytest.approx(expected, abs=0.04)
    # Fewer spans reach the first and the last words than those between.
    frequencies = covered[:, :60].mean(axis=0)
    assert frequencies[5:55].tolist() == pytest.approx([frequencies[5:55].mean()] * 50, abs=0.04)
    assert frequencies[:5].tolist() == pytest.approx(frequencies[:54:-1].tolist(), abs=0.04)
    before = inserted[:, :61].mean(axis=0)
    assert before.tolist() == pytest.approx([before.mean()] * 61, rel=0.6)
    assert not inserted[:, 61:].any()
    one_word = Infilling()._sample_spans(np.ones(50, np.int64), 4, CounterRng(0, 0, np.arange(50)))
    assert one_word[0][:, 0].all()


@given(documents, integers(0, 9))
def test_permuted_sentences_stay_whole(text, seed):
    source = DocSentences(length=LENGTH).plan(NumberedSplit.of(text), SPECIALS, 0)
    index = np.arange(source.num_sequences)
    batch = source.sequences(index, np.zeros_like(index))
    noised, _ = add_noise(Infilling(masking_rate=0.01), batch, seed)
    for i in range(len(batch.token_ids)):
        sentence = dict(zip(batch.token_ids[i], batch.token_info.sentence_ids[i], strict=True))
        visible = [int(p) for p in noised.token_ids[i] if p >= FIRST_TOKEN]
        runs = [sentence[p] for p in visible]
        changes = 1 + sum(a != b for a, b in pairwise(runs))
        assert not runs or changes == len(set(runs))
        assert noised.token_ids[i, 0] == SPECIALS.start
        assert noised.token_ids[i][noised.is_real[i]][-1] == SEP


def test_every_order_of_sentences_is_as_likely():
    """Lewis et al. 2020, section 2.2: sentences are shuffled in a random order."""
    source = DocSentences(length=16).plan(NumberedSplit.of([[[2], [3], [4]]] * 3000), SPECIALS, 0)
    batch = source.sequences(np.arange(3000), np.zeros(3000, np.int64))
    source_positions = _shuffle_sentences(batch, CounterRng(0, 0, np.arange(3000)))
    moved = np.take_along_axis(batch.token_ids, source_positions, 1)
    assert (moved[batch.is_special] == batch.token_ids[batch.is_special]).all()
    assert (np.sort(moved) == np.sort(batch.token_ids)).all()
    words = [batch.token_ids[:, 1:3], batch.token_ids[:, 3:6], batch.token_ids[:, 6:10]]
    counts = []
    for order in permutations(words):
        counts.append((moved[:, 1:10] == np.concatenate(order, axis=1)).all(axis=1).sum())
    assert sum(counts) == 3000
    assert np.abs(np.array(counts) - 500).max() < 5 * np.sqrt(500)


@given(documents, integers(0, 9))
def test_fragment_is_half_of_the_text_at_its_positions(text, seed):
    batch = full_sentences(text)
    noising = Fragment(corruption=TokenReplacement(mask=1.0, random=0.0, keep=0.0))
    noised, targets = add_noise(noising, batch, seed)
    for i in range(len(batch.token_ids)):
        real = of_sequence(targets.weights, i, len(batch.token_ids)) > 0
        position = of_sequence(
            targets.extra_inputs["decoder_position_ids"], i, len(batch.token_ids)
        )[real]
        target = of_sequence(targets.labels, i, len(batch.token_ids))[real]
        num_text = int((~batch.is_special[i]).sum())
        assert len(target) == min(num_text, max(1, np.rint(0.5 * num_text)))
        assert np.array_equal(target, np.arange(target[0], target[0] + len(target)))
        assert np.array_equal(batch.token_ids[i][position], target)
        assert (noised.token_ids[i][position] == MASK).all()
        assert int((noised.token_ids[i] != batch.token_ids[i]).sum()) == len(target)


def test_a_fragment_begins_at_the_first_mask():
    assert Fragment().first_position([7, 8, MASK, MASK, 9], SPECIALS) == 2
    assert Fragment().first_position([7, 8, 9], SPECIALS) == 0


def test_a_fragment_keeps_the_positions_of_its_tokens():
    batch = long_sequences(10)
    position_ids = np.broadcast_to(np.arange(128, 0, -1, dtype=np.int32), batch.token_ids.shape)
    batch = replace(batch, token_info=replace(batch.token_info, position_ids=position_ids))
    _, targets = add_noise(Fragment(), batch)
    columns = targets.positions % 128
    assert np.array_equal(targets.extra_inputs["decoder_position_ids"], 128 - columns)


def test_fragments_of_one_and_of_all_tokens():
    batch = long_sequences(10)
    num_masked = TokenReplacement(mask=1.0, random=0.0, keep=0.0)
    i, text = len(batch.token_ids), ~batch.is_special

    noised, targets = add_noise(Fragment(masking_rate=0.001, corruption=num_masked), batch)
    assert (targets.weights.reshape(i, -1).sum(axis=1) == 1).all()
    assert (noised.token_ids.ravel()[targets.positions] == MASK).all()
    assert np.array_equal(targets.labels, batch.token_ids.ravel()[targets.positions])
    assert (targets.extra_inputs["decoder_input_ids"] == MASK).all()

    noised, targets = add_noise(Fragment(masking_rate=1.0, corruption=num_masked), batch)
    assert (noised.token_ids[text] == MASK).all()
    for row in range(i):
        real = of_sequence(targets.weights, row, i) > 0
        target = of_sequence(targets.labels, row, i)[real]
        inputs = of_sequence(targets.extra_inputs["decoder_input_ids"], row, i)[real]
        assert np.array_equal(target, batch.token_ids[row][text[row]])
        assert inputs.tolist() == [MASK, *target[:-1].tolist()]


@pytest.mark.parametrize(
    ("noising", "rate"), [(Sentinels(), 0.15), (Infilling(), 0.3), (Fragment(), 0.5)]
)
def test_masked_counts(noising: Noising, rate: float):
    batch = long_sequences()
    _, targets = add_noise(noising, batch)
    num_masked, num_tokens = targets.masked_counts
    assert num_tokens == batch.is_real.sum()
    assert num_masked / num_tokens == pytest.approx(rate, abs=0.02)


def test_too_few_sentinels_are_an_error():
    with pytest.raises(UserError, match=r"noising\.number is 2"):
        add_noise(Sentinels(number=2), long_sequences(30))


def test_first_side_is_read_and_second_predicted() -> None:
    sizes = [(3, 4), (6, 2), (5, 30)]
    pairs = [[[1] * size] for both in sizes for size in both]
    batch = all_sequences(plan_text(TranslationPair(length=LENGTH), pairs)[0])
    noised, targets = add_noise(Translation(), batch)
    width, begin = Translation().num_targets(LENGTH), FIRST_TOKEN
    for i, (first, second) in enumerate(sizes):
        read = noised.token_ids[i][noised.is_real[i]].tolist()
        assert read == [CLS, *range(begin, begin + first), SEP]
        weight = of_sequence(targets.weights, i, 3) > 0
        original = [*range(begin + first, begin + first + second), SEP]
        target = of_sequence(targets.labels, i, 3)[weight].tolist()
        assert target == original[:width]
        inputs = of_sequence(targets.extra_inputs["decoder_input_ids"], i, 3)[weight].tolist()
        assert inputs == [CLS, *target[:-1]]
        begin += first + second


def test_translation_without_pairs_is_an_error() -> None:
    with pytest.raises(UserError, match="translation-pair"):
        add_noise(Translation(), full_sentences([[[1, 2, 1]]]))


def test_two_pairs_in_a_sequence_are_an_error() -> None:
    source, _ = plan_text(TranslationPair(length=LENGTH, packing=True), [[[1, 2]]] * 4)
    with pytest.raises(UserError, match="one pair per sequence"):
        add_noise(Translation(), all_sequences(source))


def test_sentinels_are_tokens_of_a_vocabulary_with_gaps() -> None:
    """Unused ids are skipped."""
    sparse = Vocabulary(VOCABULARY.size, SPECIALS, missing=frozenset({VOCABULARY.size - 2}))
    batch = long_sequences(20)
    _, targets = Sentinels().add_noise(
        batch, sparse, CounterRng(0, 0, np.arange(len(batch.token_ids))), 0.0
    )
    target = targets.labels[targets.weights > 0]
    assert VOCABULARY.size - 1 in target
    assert VOCABULARY.size - 2 not in target
    assert VOCABULARY.size - 3 in target


@given(text=documents, seed=integers(0, 5))
def test_deletion_keeps_words_in_order_and_the_decoder_predicts_the_text(text, seed):
    batch = full_sentences(text)
    noised, targets = add_noise(Deletion(), batch, seed)
    num_deleted = 0
    for i, (before, after) in enumerate(zip(batch.token_ids, noised.token_ids, strict=True)):
        words, kept = before[before != PAD].tolist(), after[after != PAD].tolist()
        assert kept == [token for token in words if token in {*kept}]
        assert [words[0], words[-1]] == [kept[0], kept[-1]] == [CLS, SEP]
        assert len(kept) > words.count(CLS) + words.count(SEP)
        word_ids = batch.token_info.word_ids[i]
        deleted = {word for word, token in zip(word_ids, before, strict=True) if token not in kept}
        kept_words = {word for word, token in zip(word_ids, before, strict=True) if token in kept}
        assert not deleted & kept_words - {-1}
        assert (noised.token_info.document_ids[i] >= 0).sum() == len(kept)
        labels, inputs = (
            of_sequence(values, i, len(batch.token_ids))[: len(words)].tolist()
            for values in (targets.labels, targets.extra_inputs["decoder_input_ids"])
        )
        assert (labels, inputs) == (words, [CLS, *words[:-1]])
        num_deleted += len(words) - len(kept)
    assert targets.masked_counts == (num_deleted, int(batch.is_real.sum()))


@pytest.mark.parametrize("rate", [0.3, 0.6])
def test_deletion_deletes_each_word_with_its_rate(rate: float):
    batch = long_sequences()
    noised, _ = add_noise(Deletion(deletion_rate=rate), batch)
    is_word = np.diff(batch.token_info.word_ids, axis=1, prepend=-2) > 0
    kept = np.isin(batch.token_ids, noised.token_ids)
    num_words = (is_word & ~batch.is_special).sum()
    deleted = (is_word & ~batch.is_special & ~kept).sum()
    assert abs(deleted / num_words - rate) < 4 * math.sqrt(rate * (1 - rate) / num_words)


def test_masks_that_exceed_a_sequence_replace_its_last_tokens() -> None:
    batch = full_sentences([[[1] * 4000]])
    noised, _ = add_noise(Infilling(masking_rate=0.5, mean=1.0), batch)
    num_cut = 0
    for before, after in zip(batch.token_ids, noised.token_ids, strict=True):
        kept = after[(after != MASK) & (after != PAD)]
        assert kept.tolist() == before[np.isin(before, kept)].tolist()
        num_cut += SEP not in kept
    assert num_cut > 10
