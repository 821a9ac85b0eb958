"""Some documents of a split as if there were no others: those in one language, or the translations
between two."""

from collections.abc import Collection, Iterator
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from bertwright.text.occurrences import Occurrences
from bertwright.text.shards import Split, Stretches, Turns


class SelectedSplit(Split):
    """Some documents of a split, in their order, end to end.

    Nothing is copied but where documents and sentences start: a position here is looked up among
    the *runs*, the stretches of documents that are neighbours there, too.
    """

    def __init__(self, whole: Split, documents: NDArray[np.int64], name: str) -> None:
        """``documents`` (n,) are the numbers of the chosen ones, in order."""
        self._whole = whole
        self.name = name
        self.language_names = whole.language_names
        lengths = np.diff(whole.document_starts)[documents]
        self.document_starts = np.append(0, np.cumsum(lengths))
        self.num_documents, self.num_pieces = len(documents), int(lengths.sum())
        shift = whole.document_starts[documents] - self.document_starts[:-1]
        first = np.flatnonzero(np.diff(documents, prepend=-2) != 1)
        self._runs = self.document_starts[first]
        self._shift = shift[first]

        place = np.full(whole.num_documents, -1)
        place[documents] = np.arange(len(documents))
        sentences = whole.sentence_starts[:-1]
        mine = place[np.searchsorted(whole.document_starts, sentences, side="right") - 1]
        starts = sentences[mine >= 0] - shift[mine[mine >= 0]]
        self.sentence_starts = np.append(starts, self.num_pieces)
        self.num_sentences = len(starts)
        self.languages = None if whole.languages is None else whole.languages[documents]
        second = whole.translations
        second = second[(place[second] >= 0) & (place[second - 1] >= 0)]
        self.translations = place[second]
        self.phrases, self.entities = (
            known and _stretches_of(known, whole.document_starts, place, shift)
            for known in (whole.phrases, whole.entities)
        )
        self.capitals = None
        if whole.capitals is not None:
            kept, moved = _moved(whole.capitals, whole.document_starts, place, shift)
            self.capitals = whole.capitals[kept] - moved
        self.occurrences = whole.occurrences and Occurrences(self)
        self.turns = whole.turns and _turns_of(whole.turns, whole.document_starts, place, shift)

    def pieces_of(self, text: str) -> list[int]:
        return self._whole.pieces_of(text)

    def pieces(self, start: int, stop: int) -> NDArray[np.int32]:
        parts = [self._whole.pieces(*there) for there in self._stretches(start, stop)]
        return np.concatenate([*parts, np.empty(0, np.int32)])

    def marks(self, start: int, stop: int) -> NDArray[np.uint8]:
        parts = [self._whole.marks(*there) for there in self._stretches(start, stop)]
        return np.concatenate([*parts, np.empty(0, np.uint8)])

    def word_bytes(self, start: int, stop: int) -> NDArray[np.uint16]:
        parts = [self._whole.word_bytes(*there) for there in self._stretches(start, stop)]
        return np.concatenate([*parts, np.empty(0, np.uint16)])

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        first, last = (self._run_of(starts + offset) for offset in (0, length - 1))
        if np.array_equal(first, last):
            return self._whole.gather(starts + self._shift[first], length)
        places = (np.asarray(starts)[:, None] + np.arange(length)).ravel()
        pieces, marks = self._whole.gather(places + self._shift[self._run_of(places)], 1)
        return pieces.reshape(-1, length), marks.reshape(-1, length)

    def _run_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._runs, places, side="right") - 1

    def _stretches(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Where [start, stop) lies in the whole."""
        inside = self._runs[(self._runs > start) & (self._runs < stop)].tolist()
        for begin, end in pairwise([start, *inside, stop]):
            shift = int(self._shift[self._run_of(np.array(begin))])
            yield begin + shift, end + shift


def _moved(
    positions: NDArray[np.int64],
    document_starts: NDArray[np.int64],
    place: NDArray[np.int64],
    shift: NDArray[np.int64],
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which positions lie in chosen documents, and how far those move."""
    mine = place[np.searchsorted(document_starts, positions, side="right") - 1]
    return mine >= 0, shift[mine[mine >= 0]]


def _stretches_of(known: Stretches, *where: NDArray[np.int64]) -> Stretches:
    kept, moved = _moved(known.starts, *where)
    return Stretches(known.starts[kept] - moved, known.stops[kept] - moved)


def _turns_of(turns: Turns, *where: NDArray[np.int64]) -> Turns:
    kept, moved = _moved(turns.starts, *where)
    return Turns(turns.starts[kept] - moved, turns.speakers[kept])


def languages_apart(split: Split, wanted: Collection[str] = ()) -> list[SelectedSplit]:
    """A split for each of the languages that its documents are in, or those that are ``wanted``, in
    the order of their names."""
    assert split.languages is not None
    return [
        SelectedSplit(split, np.flatnonzero(split.languages == number), name)
        for number, name in sorted(enumerate(split.language_names), key=itemgetter(1))
        if (not wanted or name in wanted) and (split.languages == number).any()
    ]


def translations_apart(split: Split, wanted: Collection[str] = ()) -> list[SelectedSplit]:
    """A split for each two languages between which it has translations, or two of those that are
    ``wanted``, the first side first, in the order of their names."""
    assert split.languages is not None
    names, second = split.language_names, split.translations
    pairs = np.stack([split.languages[second - 1], split.languages[second]], axis=1)
    found: list[SelectedSplit] = []
    for a, b in np.unique(pairs, axis=0).tolist():
        if wanted and not {names[a], names[b]}.issubset(wanted):
            continue
        mine = second[(pairs == (a, b)).all(axis=1)]
        documents = np.stack([mine - 1, mine], axis=1).ravel()
        found.append(SelectedSplit(split, documents, f"{names[a]}-{names[b]}"))
    return sorted(found, key=lambda own: own.name)
