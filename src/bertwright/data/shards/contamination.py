"""Detection of test texts that overlap with the training split.

Two texts overlap if they share a 13-gram of tokens (of words in Brown et al. 2020, appendix C). A
shorter text is a single n-gram; a text of less than 8 tokens is never reported.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.core.rng import hash_ngrams, stream_key
from bertwright.data.shards.dataset import Dataset, Split

_NGRAM_LENGTH, _MIN_NGRAM_LENGTH = 13, 8
_BLOCK_LENGTH = 1 << 18
_KEY = stream_key(0, "overlap")


def find_contaminated(data: Dataset, texts: Iterable[str]) -> list[bool]:
    """Return for each text whether it shares an n-gram with the training split."""
    split = data.split("train")
    sequences = [np.array(split.tokenize(text), np.int64) for text in texts]
    results = [False] * len(sequences)
    for length in range(_MIN_NGRAM_LENGTH, _NGRAM_LENGTH + 1):
        indices = [n for n, ids in enumerate(sequences) if min(len(ids), _NGRAM_LENGTH) == length]
        hashes = [hash_ngrams(_KEY, sequences[n], length) for n in indices]
        for index, overlaps in zip(indices, _contain_any(split, hashes, length), strict=True):
            results[index] = overlaps
    return results


def _contain_any(
    split: Split, ngram_hashes: Sequence[NDArray[np.uint64]], ngram_length: int
) -> list[bool]:
    """Return for each text whether the split contains any of its n-grams."""
    if not ngram_hashes:
        return []
    unique = np.unique(np.concatenate(ngram_hashes))
    is_present = np.zeros(len(unique), bool)
    for start in range(0, split.num_tokens, _BLOCK_LENGTH):
        token_ids = split.token_ids(
            start, min(start + _BLOCK_LENGTH + ngram_length - 1, split.num_tokens)
        )
        is_present |= np.isin(unique, hash_ngrams(_KEY, token_ids, ngram_length))
    return [bool(is_present[np.searchsorted(unique, hashes)].any()) for hashes in ngram_hashes]
