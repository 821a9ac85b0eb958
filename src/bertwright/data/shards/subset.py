"""Subsets of a split: documents in one language, or translations between two languages."""

from collections.abc import Collection, Iterator
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from bertwright.data.shards.dataset import DialogueTurns, Split, TokenSpans
from bertwright.data.shards.occurrences import TokenOccurrences


class SplitSubset(Split):
    """A subset of a split's documents that behaves like a split.

    ``documents`` (n,) are indices in the split, in order. Tokens are not copied: positions are
    mapped to the split by *runs*, which are groups of documents that are adjacent in both.
    """

    def __init__(self, split: Split, documents: NDArray[np.int64], name: str) -> None:
        self._split = split
        self.name = name
        self.language_names = split.language_names
        lengths = np.diff(split.document_starts)[documents]
        self.document_starts = np.append(0, np.cumsum(lengths))
        self.num_documents, self.num_tokens = len(documents), int(lengths.sum())
        shift = split.document_starts[documents] - self.document_starts[:-1]
        first = np.flatnonzero(np.diff(documents, prepend=-2) != 1)
        self._run_starts = self.document_starts[first]
        self._shift = shift[first]

        new_index = np.full(split.num_documents, -1)
        new_index[documents] = np.arange(len(documents))

        def select(positions: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
            """Return which positions lie in the subset, and their positions there."""
            index = np.searchsorted(split.document_starts, positions, side="right") - 1
            is_inside = new_index[index] >= 0
            return is_inside, positions[is_inside] - shift[new_index[index[is_inside]]]

        def select_spans(spans: TokenSpans) -> TokenSpans:
            is_inside, starts = select(spans.starts)
            return TokenSpans(starts, starts + (spans.stops - spans.starts)[is_inside])

        def select_turns(turns: DialogueTurns) -> DialogueTurns:
            is_inside, starts = select(turns.starts)
            return DialogueTurns(starts, turns.speakers[is_inside])

        self.sentence_starts = np.append(select(split.sentence_starts[:-1])[1], self.num_tokens)
        self.num_sentences = len(self.sentence_starts) - 1
        self.language_ids = None if split.language_ids is None else split.language_ids[documents]
        second = split.translations
        second = second[(new_index[second] >= 0) & (new_index[second - 1] >= 0)]
        self.translations = new_index[second]
        self.phrases = split.phrases and select_spans(split.phrases)
        self.entities = split.entities and select_spans(split.entities)
        self.turns = split.turns and select_turns(split.turns)
        self.capitals = None if split.capitals is None else select(split.capitals)[1]
        self.occurrences = split.occurrences and TokenOccurrences(self)

    def tokenize(self, text: str) -> list[int]:
        return self._split.tokenize(text)

    def token_ids(self, start: int, stop: int) -> NDArray[np.int32]:
        parts = [self._split.token_ids(*source) for source in self._source_ranges(start, stop)]
        return np.concatenate([*parts, np.empty(0, np.int32)])

    def boundaries(self, start: int, stop: int) -> NDArray[np.uint8]:
        parts = [self._split.boundaries(*source) for source in self._source_ranges(start, stop)]
        return np.concatenate([*parts, np.empty(0, np.uint8)])

    def word_bytes(self, start: int, stop: int) -> NDArray[np.uint16]:
        parts = [self._split.word_bytes(*source) for source in self._source_ranges(start, stop)]
        return np.concatenate([*parts, np.empty(0, np.uint16)])

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        first, last = (self._run_index(starts + offset) for offset in (0, length - 1))
        if np.array_equal(first, last):
            return self._split.gather(starts + self._shift[first], length)
        positions = (np.asarray(starts)[:, None] + np.arange(length)).ravel()
        token_ids, boundaries = self._split.gather(
            positions + self._shift[self._run_index(positions)], 1
        )
        return token_ids.reshape(-1, length), boundaries.reshape(-1, length)

    def _run_index(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._run_starts, positions, side="right") - 1

    def _source_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the split that make up [start, stop)."""
        inside = self._run_starts[(self._run_starts > start) & (self._run_starts < stop)].tolist()
        for begin, end in pairwise([start, *inside, stop]):
            shift = int(self._shift[self._run_index(np.array(begin))])
            yield begin + shift, end + shift


def split_by_language(split: Split, languages: Collection[str] = ()) -> list[SplitSubset]:
    """Return a subset for each language (only ``languages``, if any), sorted by name."""
    assert split.language_ids is not None
    return [
        SplitSubset(split, np.flatnonzero(split.language_ids == index), name)
        for index, name in sorted(enumerate(split.language_names), key=itemgetter(1))
        if (not languages or name in languages) and (split.language_ids == index).any()
    ]


def split_by_language_pair(split: Split, languages: Collection[str] = ()) -> list[SplitSubset]:
    """Return a subset of translations for each ordered pair of languages, sorted by name.

    With ``languages``, both sides must be among them.
    """
    assert split.language_ids is not None
    names, second = split.language_names, split.translations
    pairs = np.stack([split.language_ids[second - 1], split.language_ids[second]], axis=1)
    subsets: list[SplitSubset] = []
    for a, b in np.unique(pairs, axis=0).tolist():
        if languages and not {names[a], names[b]}.issubset(languages):
            continue
        translations = second[(pairs == (a, b)).all(axis=1)]
        documents = np.stack([translations - 1, translations], axis=1).ravel()
        subsets.append(SplitSubset(split, documents, f"{names[a]}-{names[b]}"))
    return sorted(subsets, key=lambda subset: subset.name)
