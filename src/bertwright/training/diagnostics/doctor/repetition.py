"""Measure repetition in prepared text, in bounded time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertwright.core.rng import RandomPermutation, random_bits, stream_key
from bertwright.data.deduplication import MinHasher, MinHashIndex
from bertwright.data.document import Document
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import Tokenizer

MAX_TOKENS = 4_000_000
"""Tokens of the training split searched for repeated sentences."""

MIN_SENTENCE_TOKENS = 8
"""Minimum length of a counted sentence: a repeated "Thank you." is not a fault."""

MAX_DOCUMENTS, MAX_SKETCHED_TOKENS = 2_000, 600_000
"""Size of the sample searched for near duplicates."""

MAX_DOCUMENT_TOKENS = 30_000
"""Maximum number of tokens read per sampled document."""

GROUP_SIZE = 8
"""Neighbouring documents sampled together: copies are often adjacent."""


@dataclass(frozen=True)
class RepeatedSentences:
    """The fraction of tokens in repeated sentences, and the most frequent sentence."""

    fraction: float
    most_frequent: str
    count: int


@dataclass(frozen=True)
class NearDuplicateCounts:
    """The number of near duplicates of earlier documents in a sample."""

    num_similar: int
    num_sampled: int


def count_repeated_sentences(split: Split, tokenizer: Tokenizer) -> RepeatedSentences:
    """Count exact repetitions of sentences in the first ``MAX_TOKENS`` of a split."""
    num_sentences = int(np.searchsorted(split.sentence_starts, MAX_TOKENS, side="right")) - 1
    starts = split.sentence_starts[: num_sentences + 1]
    if num_sentences < 1:
        return RepeatedSentences(0.0, "", 0)
    lengths = np.diff(starts)
    hashes = _sentence_hashes(split.token_ids(0, int(starts[-1])), starts, lengths)
    is_counted = lengths >= MIN_SENTENCE_TOKENS
    _, first, counts = np.unique(hashes[is_counted], return_index=True, return_counts=True)
    lengths = lengths[is_counted]
    if not len(lengths):
        return RepeatedSentences(0.0, "", 0)
    num_repeated = lengths.sum() - lengths[first].sum()
    most_frequent = int(counts.argmax())
    sentence = np.flatnonzero(is_counted)[first[most_frequent]]
    begin, end = starts[sentence], starts[sentence + 1]
    text = tokenizer.decode(split.token_ids(int(begin), int(end)).tolist())
    return RepeatedSentences(float(num_repeated / starts[-1]), text, int(counts[most_frequent]))


def count_near_duplicates(split: Split, tokenizer: Tokenizer) -> NearDuplicateCounts:
    """Count sampled documents that share 80 % of their 5-grams with an earlier one."""
    index = MinHashIndex()
    num_similar = num_sampled = 0
    for documents in _sample_documents(split, tokenizer):
        for _, sketch in MinHasher()(list(map(Document, documents))):
            num_similar += not index.add(sketch)
            num_sampled += 1
    return NearDuplicateCounts(num_similar, num_sampled)


def _sentence_hashes(
    token_ids: NDArray[np.int32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return a 64-bit hash per sentence: the sum of hashes of each token and its position."""
    position = np.arange(len(token_ids)) - np.repeat(starts[:-1], lengths)
    return np.add.reduceat(random_bits(stream_key(0, "sentence"), token_ids, position), starts[:-1])


def _sample_documents(split: Split, tokenizer: Tokenizer) -> Iterator[list[str]]:
    """Yield the texts of groups of neighbouring documents in random order."""
    num_groups = -(-split.num_documents // GROUP_SIZE)
    if num_groups == 0:
        return
    order = RandomPermutation(num_groups, stream_key(0, "near duplicates"))
    remaining_documents, remaining_tokens = MAX_DOCUMENTS, MAX_SKETCHED_TOKENS
    for group in range(num_groups):
        first = GROUP_SIZE * int(order(group))
        starts = split.document_starts[first : min(first + GROUP_SIZE, split.num_documents)]
        stops = split.document_starts[first + 1 : first + 1 + len(starts)]
        stops = np.minimum(stops, starts + MAX_DOCUMENT_TOKENS)
        remaining_documents -= len(starts)
        remaining_tokens -= int((stops - starts).sum())
        if group > 0 and min(remaining_documents, remaining_tokens) < 0:
            return
        bounds = zip(starts.tolist(), stops.tolist(), strict=True)
        yield [tokenizer.decode(split.token_ids(a, b).tolist()) for a, b in bounds]
