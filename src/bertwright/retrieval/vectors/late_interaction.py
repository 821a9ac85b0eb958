"""Late interaction: one vector per token, compared by MaxSim (Khattab and Zaharia 2020).

The score of a text is the sum, over the tokens of the query, of the highest dot product with a
token of the text. Every text is scored.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from bertwright.models.retrieval_encoder import FloatMatrix, TextVectors
from bertwright.retrieval.rankings import Ranking, top_ranking
from bertwright.retrieval.settings import IndexSettings
from bertwright.retrieval.vectors.segment import VectorSegment, compress_rows, normalise_rows

TOKENS_FILE, OFFSETS_FILE = "tokens.bin", "token_offsets.npy"
BLOCK_TOKENS = 1 << 15
"""Number of tokens of texts that are compared at once."""

QUERIES_AT_ONCE = 16
_NO_TOKENS = np.empty((0, 1), np.float32)


class LateInteractionSegment(VectorSegment):
    """Token vectors of a segment, (T, D), with the offsets of the texts (N + 1,)."""

    def __init__(
        self, tokens: NDArray[Any], offsets: NDArray[np.int64], dimensions: int | None
    ) -> None:
        self._tokens, self._offsets, self._dimensions = tokens, offsets, dimensions

    @classmethod
    def write(
        cls, folder: Path, batches: Iterable[TextVectors], num_texts: int, settings: IndexSettings
    ) -> None:
        """Append the token vectors of all texts to one file."""
        lengths: list[int] = []
        with open(folder / TOKENS_FILE, "wb") as stream:
            for batch in batches:
                matrices = cast(Sequence[FloatMatrix], batch)
                lengths += [len(matrix) for matrix in matrices]
                rows = normalise_rows(np.concatenate(matrices), settings.dimensions)
                stream.write(compress_rows(rows, settings.vector_type).tobytes())
        np.save(folder / OFFSETS_FILE, np.cumsum([0, *lengths], dtype=np.int64))

    @classmethod
    def open(cls, folder: Path, num_texts: int, settings: IndexSettings) -> Self:
        """Map the token vectors into memory."""
        offsets = np.load(folder / OFFSETS_FILE, allow_pickle=False)
        num_tokens, file = int(offsets[-1]), folder / TOKENS_FILE
        if not num_tokens:
            return cls(np.empty((0, 1), np.float32), offsets, settings.dimensions)
        tokens = np.asarray(np.memmap(file, settings.vector_type, mode="r"))
        return cls(tokens.reshape(num_tokens, -1), offsets, settings.dimensions)

    def rank(self, queries: TextVectors, top: int) -> list[Ranking]:
        """Return the texts with the highest MaxSim."""
        matrices = [
            normalise_rows(matrix, self._dimensions)
            for matrix in cast(Sequence[FloatMatrix], queries)
        ]
        return [
            top_ranking(scores, top)
            for start in range(0, len(matrices), QUERIES_AT_ONCE)
            for scores in self._scores(matrices[start : start + QUERIES_AT_ONCE])
        ]

    def _scores(self, queries: Sequence[FloatMatrix]) -> FloatMatrix:
        """Return the MaxSim of every query and text, (Q, N)."""
        tokens = np.concatenate([query for query in queries if len(query)] or [_NO_TOKENS])
        scores = np.zeros((len(queries), len(self._offsets) - 1), np.float32)
        if not len(tokens) or not len(self._tokens):
            return scores
        splits = np.cumsum([len(query) for query in queries])[:-1]
        for start, stop in self._blocks():
            highest = self._highest_similarities(start, stop, tokens)
            for row, part in zip(scores, np.split(highest, splits, axis=1), strict=True):
                row[start:stop] = part.sum(1)
        return scores

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of texts with a limited number of tokens."""
        start, num_texts = 0, len(self._offsets) - 1
        while start < num_texts:
            limit = self._offsets[start] + BLOCK_TOKENS
            stop = max(start + 1, int(np.searchsorted(self._offsets, limit, "right")) - 1)
            yield start, stop
            start = stop

    def _highest_similarities(self, start: int, stop: int, tokens: FloatMatrix) -> FloatMatrix:
        """Return the highest similarity of each text with each query token (T, D), (N, T).

        A text without tokens has zeros.
        """
        offsets = self._offsets[start : stop + 1] - self._offsets[start]
        rows = self._tokens[self._offsets[start] : self._offsets[stop]]
        unit = normalise_rows(rows) if rows.dtype == np.int8 else rows.astype(np.float32)
        highest = np.zeros((stop - start, len(tokens)), np.float32)
        has_tokens = np.diff(offsets) > 0
        if has_tokens.any():
            similarities = unit @ tokens.T
            highest[has_tokens] = np.maximum.reduceat(similarities, offsets[:-1][has_tokens])
        return highest
