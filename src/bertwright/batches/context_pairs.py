"""Pairs of a centre word and a context word near it (Mikolov et al. 2013)."""

import numpy as np

from bertwright.batches.arrays import BoolArray, FloatArray, Int32Array, IntArray
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng


def context_pairs(
    batch: SequenceBatch,
    vocabulary: Vocabulary,
    rng: CounterRng,
    window: int,
    subsampling: float,
    noise_power: float,
) -> Targets:
    """Return ``window + 1`` pairs for every position: a centre word and a word of its context.

    Frequent words are discarded first, so windows extend beyond them. The positions of a target are
    those of the centre, its labels the context words. ``extra_inputs`` holds ``context_positions``,
    indices into the flattened batch, and ``noise_ids``, one noise word for each centre, drawn from
    the unigram distribution to the power ``noise_power``. Pairs have weight 0 if one of their words
    is discarded or special, or if they belong to two documents.
    """
    num_sequences, length = batch.token_ids.shape
    is_kept = ~batch.is_special & batch.is_real
    is_kept &= ~is_subsampled(batch.token_ids, vocabulary, rng.fold_in("subsampling"), subsampling)
    # (B, L): the kept positions in order, then the others.
    kept_positions = np.argsort(~is_kept, axis=1, kind="stable")
    num_kept, rank = is_kept.sum(axis=1)[:, None, None], np.cumsum(is_kept, axis=1) - 1
    columns = np.arange(length)
    offsets = draw_offsets(rng.fold_in("offsets").uniform(columns), window)
    context_ranks = rank[..., None] + offsets
    is_pair = is_kept[..., None] & (context_ranks >= 0) & (context_ranks < num_kept)
    contexts = np.take_along_axis(
        kept_positions, np.clip(context_ranks, 0, length - 1).reshape(num_sequences, -1), axis=1
    ).reshape(context_ranks.shape)
    centres = np.broadcast_to(columns[:, None], contexts.shape)
    if (document_ids := batch.token_info.document_ids) is not None:
        flat_contexts = contexts.reshape(num_sequences, -1)
        context_documents = np.take_along_axis(document_ids, flat_contexts, axis=1)
        is_pair &= context_documents.reshape(contexts.shape) == document_ids[..., None]
    noise = noise_ids(rng.fold_in("noise").uniform(columns), vocabulary, noise_power)
    starts = (length * np.arange(num_sequences))[:, None, None]
    context_positions = (contexts + starts).ravel()
    return Targets(
        (centres + starts).ravel(),
        batch.token_ids.ravel()[context_positions].astype(np.int64),
        is_pair.ravel().astype(np.float32),
        {
            "context_positions": context_positions,
            "noise_ids": np.repeat(noise.ravel(), window + 1),
        },
    )


def is_subsampled(
    token_ids: Int32Array, vocabulary: Vocabulary, rng: CounterRng, threshold: float
) -> BoolArray:
    """Return which tokens (B, L) are discarded: 1 - sqrt(threshold / frequency) of a word.

    With a threshold of 0 none are.
    """
    if threshold == 0.0:
        return np.zeros(token_ids.shape, np.bool_)
    counts = vocabulary.smoothed_counts
    keep_probabilities = np.sqrt(threshold * counts.sum() / counts)
    return rng.uniform(np.arange(token_ids.shape[1])) >= keep_probabilities[token_ids]


def draw_offsets(uniforms: FloatArray, window: int) -> IntArray:
    """Return ``window + 1`` different offsets (..., window + 1) for each uniform number (...).

    They come from systematic sampling: an offset d is among them with probability
    (window + 1 - abs(d)) / window, as in a window whose size is drawn from 1 to ``window``.
    """
    distances = np.arange(1, window + 1)
    offsets = np.concatenate((-distances[::-1], distances))
    cumulative = np.cumsum(window + 1 - np.abs(offsets)) / window
    points = uniforms[..., None] + np.arange(window + 1)
    return offsets[np.searchsorted(cumulative[:-1], points, side="right")]


def noise_ids(uniforms: FloatArray, vocabulary: Vocabulary, power: float) -> IntArray:
    """Return a word (...) for each uniform number, by its frequency to a power.

    Special tokens are not drawn.
    """
    text_ids = vocabulary.text_token_ids
    weights = vocabulary.smoothed_counts[text_ids] ** power
    cumulative = np.cumsum(weights)[:-1] / weights.sum()
    return text_ids[np.searchsorted(cumulative, uniforms, side="right")]
