"""Hard negatives: texts that an index finds for a query although they do not belong to it.

A text that scores about as high as the known positive one may itself belong to the query without
a label. Such texts are left out: those above a fraction of the positive's score
(Moreira et al. 2024, NV-Retriever, TopK-PercPos), or closer to it than a margin.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertwright.retrieval.reranking import CrossEncoder
from bertwright.retrieval.search_index import SearchHit, SearchIndex

QUERIES_AT_ONCE = 256


class PositivePair(NamedTuple):
    """A query and a text that belongs to it."""

    query: str
    text: str


@dataclass(frozen=True)
class MinedNegative:
    """A negative of a positive pair.

    Attributes:
        margin: the cross-encoder's logit of the positive text minus that of the negative; None
            without a cross-encoder.
    """

    query: str
    positive: str
    negative: str
    margin: float | None = None


@dataclass(frozen=True)
class MiningConfig:
    """Which of the texts found are negatives.

    Attributes:
        depth: number of texts that are searched for each query.
        num_negatives: maximum number of negatives of a pair; the highest scores come first.
        max_ratio: highest score of a negative, relative to the score of the positive text; None for
            any.
        margin: least difference from the score of the positive text; None for any.
    """

    depth: int = 100
    num_negatives: int = 1
    max_ratio: float | None = 0.95
    margin: float | None = None

    @property
    def is_filtered(self) -> bool:
        """Return whether the score of the positive text matters."""
        return self.max_ratio is not None or self.margin is not None

    def max_score(self, positive_score: float) -> float:
        """Return the highest score of a negative."""
        limits = [np.inf]
        if self.max_ratio is not None:
            # Of a score below 0, a fraction would be higher.
            limits.append(positive_score - (1 - self.max_ratio) * abs(positive_score))
        if self.margin is not None:
            limits.append(positive_score - self.margin)
        return min(limits)


class KnownPositives:
    """The positive pairs of a collection, in eight bytes for each.

    Two pairs with the same hash would only cost a negative.
    """

    def __init__(self, pairs: Iterable[PositivePair]) -> None:
        hashes = array("Q", (_hash(*pair) for pair in pairs))
        self._hashes: NDArray[np.uint64] = np.unique(np.frombuffer(hashes, np.uint64))

    def __contains__(self, pair: PositivePair) -> bool:
        value = np.uint64(_hash(*pair))
        index = int(np.searchsorted(self._hashes, value))
        return index < len(self._hashes) and bool(self._hashes[index] == value)


def _hash(query: str, text: str) -> int:
    digest = blake2b(f"{query}\x00{text.strip()}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def mine_negatives(
    index: SearchIndex,
    read_pairs: Callable[[], Iterable[PositivePair]],
    config: MiningConfig,
    cross_encoder: CrossEncoder | None = None,
) -> Iterator[list[MinedNegative]]:
    """Yield the negatives of each pair, in order; none if its positive text is not found.

    Pairs are read twice, as a stream: a text that belongs to a query in any pair is no negative of
    it, nor is the query itself. A text that is split into chunks counts once, by its best chunk.
    With a ``cross_encoder``, its probabilities are the scores, and its logits give the margins
    (Wang et al. 2022, GPL).
    """
    positives, stream = KnownPositives(read_pairs()), iter(read_pairs())
    while pairs := list(islice(stream, QUERIES_AT_ONCE)):
        hits_by_query = index.search_whole_texts([pair.query for pair in pairs], config.depth)
        for pair, hits in zip(pairs, hits_by_query, strict=True):
            yield _negatives_of(pair, hits, positives, config, cross_encoder)


def _negatives_of(
    pair: PositivePair,
    hits: Sequence[SearchHit],
    positives: KnownPositives,
    config: MiningConfig,
    cross_encoder: CrossEncoder | None,
) -> list[MinedNegative]:
    candidates = [
        hit
        for hit in hits
        if hit.content != pair.query
        and not any(PositivePair(pair.query, t) in positives for t in {hit.text, hit.content})
    ]
    if cross_encoder is not None:
        texts = [pair.text, *(hit.content for hit in candidates)]
        logits = cross_encoder.logits([(pair.query, text) for text in texts])
        scores = 1 / (1 + np.exp(-logits))
        positive_score: float | None = float(scores[0])
        candidate_scores, margins = scores[1:].tolist(), (logits[0] - logits[1:]).tolist()
    else:
        positive = pair.text.strip()
        of_positive = [h.score for h in hits if positive in (h.text.strip(), h.content.strip())]
        positive_score = max(of_positive, default=None)
        candidate_scores, margins = [hit.score for hit in candidates], [None] * len(candidates)
    if positive_score is None and config.is_filtered:
        return []
    limit = np.inf if positive_score is None else config.max_score(positive_score)
    negatives = [
        (score, MinedNegative(pair.query, pair.text, hit.content, margin))
        for hit, score, margin in zip(candidates, candidate_scores, margins, strict=True)
        if score <= limit
    ]
    negatives.sort(key=lambda negative: -negative[0])
    return [negative for _, negative in negatives[: config.num_negatives]]
