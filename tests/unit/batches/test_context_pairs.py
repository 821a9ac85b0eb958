"""Pairs of skip-gram: windows, discarded words and noise."""

from itertools import pairwise

import numpy as np

from bertwright.batches.context_pairs import context_pairs, draw_offsets, is_subsampled, noise_ids
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from numbered_text import SPECIALS

WINDOW, LENGTH, NUM_SEQUENCES = 3, 32, 40
COUNTS = np.array([0, 0, 0, 0, 0, 400, 200, 100, 50, 50, 200])
VOCABULARY = Vocabulary(len(COUNTS), SPECIALS, COUNTS)


def make_pairs(subsampling: float):
    rng = np.random.default_rng(0)
    token_ids = rng.integers(5, len(COUNTS), (NUM_SEQUENCES, LENGTH)).astype(np.int32)
    token_ids[:, [0, 12, -1]] = SPECIALS.end
    documents = np.where(np.arange(LENGTH) > 12, 1, 0)[None].repeat(NUM_SEQUENCES, 0)
    info = TokenInfoArrays(document_ids=documents.astype(np.int32))
    batch = SequenceBatch(token_ids, info, token_ids == SPECIALS.end)
    counter = CounterRng(7, 0, np.arange(NUM_SEQUENCES))
    return batch, context_pairs(batch, VOCABULARY, counter, WINDOW, subsampling, 0.75), counter


def test_a_distance_is_as_frequent_as_in_windows_of_random_size():
    offsets = draw_offsets(np.arange(600) / 600, WINDOW)
    assert all(len(set(row)) == WINDOW + 1 for row in offsets.tolist())
    for distance in range(1, WINDOW + 1):
        expected = np.mean([size >= distance for size in range(1, WINDOW + 1)])
        for offset in (-distance, distance):
            assert np.isclose((offsets == offset).sum() / 600, expected, atol=1 / 300)


def test_pairs_are_the_nearest_kept_words_of_a_document():
    batch, targets, counter = make_pairs(subsampling=0.1)
    discarded = is_subsampled(batch.token_ids, VOCABULARY, counter.fold_in("subsampling"), 0.1)
    kept = ~discarded & ~batch.is_special
    documents = batch.token_info.document_ids
    contexts = targets.extra_inputs["context_positions"]
    assert discarded.any()
    assert (targets.labels == batch.token_ids.ravel()[contexts]).all()
    counts = dict.fromkeys(np.flatnonzero(kept).tolist(), 0)
    for centre, context, weight in zip(targets.positions, contexts, targets.weights, strict=True):
        if weight == 0:
            continue
        sequence, (first, last) = centre // LENGTH, sorted((centre % LENGTH, context % LENGTH))
        assert first != last
        assert context // LENGTH == sequence
        assert documents[sequence, first] == documents[sequence, last]
        assert kept[sequence, first]
        assert kept[sequence, last]
        assert kept[sequence, first + 1 : last].sum() < WINDOW
        counts[centre] += 1
    # Neighbours are contexts of each other, from the first word of a sequence to the last.
    used = targets.weights > 0
    pairs = set(zip(targets.positions[used].tolist(), contexts[used].tolist(), strict=True))
    for first, second in pairwise(np.flatnonzero(kept).tolist()):
        if first // LENGTH == second // LENGTH and documents.flat[first] == documents.flat[second]:
            assert {(first, second), (second, first)} <= pairs
    # Every kept word is a centre, with W + 1 pairs unless a document begins or ends near it.
    assert max(counts.values()) == WINDOW + 1
    assert np.mean([number > 0 for number in counts.values()]) > 0.95


def test_frequent_words_are_discarded_and_rare_words_kept():
    token_ids = np.tile(np.array([5, 8], np.int32), (1, 20_000))
    discarded = is_subsampled(token_ids, VOCABULARY, CounterRng(1), 0.05)[0]
    total = COUNTS[5:].sum() + 5  # special tokens count as 1
    assert np.isclose(discarded[::2].mean(), 1 - np.sqrt(0.05 * total / 400), atol=0.02)
    assert not discarded[1::2].any()
    assert not is_subsampled(token_ids, VOCABULARY, CounterRng(1), 0.0).any()


def test_noise_follows_the_power_of_frequencies():
    drawn = noise_ids(np.arange(10_000) / 10_000, VOCABULARY, 0.75)
    expected = COUNTS[5:] ** 0.75 / (COUNTS[5:] ** 0.75).sum()
    assert np.allclose(np.bincount(drawn)[5:] / 10_000, expected, atol=1e-3)


def test_first_and_last_words_have_pairs_too():
    token_ids = np.tile(np.array([5, 6, 7, 8], np.int32), (400, 1))
    batch = SequenceBatch(token_ids, TokenInfoArrays(), np.zeros(token_ids.shape, np.bool_))
    targets = context_pairs(batch, VOCABULARY, CounterRng(0, 0, np.arange(400)), 2, 0.0, 0.75)
    has_weight = targets.weights > 0
    centres = targets.positions[has_weight]
    contexts = targets.extra_inputs["context_positions"][has_weight]
    pairs = set(zip((centres % 4).tolist(), (contexts % 4).tolist(), strict=True))
    assert pairs == {(a, b) for a in range(4) for b in range(4) if 0 < abs(a - b) <= 2}
    assert (centres // 4 == contexts // 4).all()
