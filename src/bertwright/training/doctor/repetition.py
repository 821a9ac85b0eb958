"""How much of a prepared text says again what it has said, in bounded time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertwright.randomness import Permutation, bits, key
from bertwright.text.documents import Document
from bertwright.text.near_duplicates import Similar, Sketcher
from bertwright.text.shards import Split
from bertwright.text.tokenizers import Tokenizer

MOST_PIECES = 4_000_000
"""Of the training split that are read for repeated sentences."""

SHORTEST = 8
"""Pieces of a sentence that counts: "Thank you." is not a fault of the text."""

MOST_DOCUMENTS, MOST_SKETCHED_PIECES = 2_000, 600_000
"""Of the sample that is searched for near duplicates."""

LONGEST_DOCUMENT = 30_000
"""Pieces of a sampled document that are read."""

NEIGHBOURS = 8
"""Documents that are sampled together: copies often lie side by side."""


@dataclass(frozen=True)
class RepeatedSentences:
    """The share of the pieces that stand in sentences seen before, and the most frequent one."""

    share: float
    most_frequent: str
    times: int


@dataclass(frozen=True)
class NearDuplicates:
    """Documents of a sample that are nearly an earlier one of it."""

    num_similar: int
    num_sampled: int


def repeated_sentences(split: Split, tokenizer: Tokenizer) -> RepeatedSentences:
    """Sentences of the first pieces of a split that equal an earlier one, piece by piece."""
    num_sentences = int(np.searchsorted(split.sentence_starts, MOST_PIECES, side="right")) - 1
    starts = split.sentence_starts[: num_sentences + 1]
    if num_sentences < 1:
        return RepeatedSentences(0.0, "", 0)
    lengths = np.diff(starts)
    hashes = _hashes(split.pieces(0, int(starts[-1])), starts, lengths)
    counted = lengths >= SHORTEST
    _, first, times = np.unique(hashes[counted], return_index=True, return_counts=True)
    lengths = lengths[counted]
    if not len(lengths):
        return RepeatedSentences(0.0, "", 0)
    again = lengths.sum() - lengths[first].sum()
    most = int(times.argmax())
    sentence = np.flatnonzero(counted)[first[most]]
    begin, end = starts[sentence], starts[sentence + 1]
    text = tokenizer.decode(split.pieces(int(begin), int(end)).tolist())
    return RepeatedSentences(float(again / starts[-1]), text, int(times[most]))


def near_duplicates(split: Split, tokenizer: Tokenizer) -> NearDuplicates:
    """Documents of a sample that share 80 % of their runs of five words with another of it."""
    similar = Similar()
    found = num_sampled = 0
    for documents in _sampled(split, tokenizer):
        for _, sketch in Sketcher()(list(map(Document, documents))):
            found += not similar.add(sketch)
            num_sampled += 1
    return NearDuplicates(found, num_sampled)


def _hashes(
    pieces: NDArray[np.int32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """64 bits of every sentence: the sum over its pieces of a hash of the piece and its place."""
    place = np.arange(len(pieces)) - np.repeat(starts[:-1], lengths)
    return np.add.reduceat(bits(key(0, "sentence"), pieces, place), starts[:-1])


def _sampled(split: Split, tokenizer: Tokenizer) -> Iterator[list[str]]:
    """Texts of documents in groups of neighbours, from all over the split."""
    num_groups = -(-split.num_documents // NEIGHBOURS)
    if num_groups == 0:
        return
    order = Permutation(num_groups, key(0, "near duplicates"))
    left_documents, left_pieces = MOST_DOCUMENTS, MOST_SKETCHED_PIECES
    for group in range(num_groups):
        first = NEIGHBOURS * int(order(group))
        starts = split.document_starts[first : min(first + NEIGHBOURS, split.num_documents)]
        stops = split.document_starts[first + 1 : first + 1 + len(starts)]
        stops = np.minimum(stops, starts + LONGEST_DOCUMENT)
        left_documents -= len(starts)
        left_pieces -= int((stops - starts).sum())
        if group > 0 and min(left_documents, left_pieces) < 0:
            return
        bounds = zip(starts.tolist(), stops.tolist(), strict=True)
        yield [tokenizer.decode(split.pieces(a, b).tolist()) for a, b in bounds]
