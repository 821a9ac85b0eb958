"""Rows in two vocabularies: every word in the pieces of the one or of the other (Zhao et al. 2019).

Pieces of two vocabularies are numbered one behind the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import OF_NONE, Coordinates, Rows
from bertwright.randomness import Draw

if TYPE_CHECKING:
    from bertwright.text.tokenizers import Specials

Recut = Callable[[tuple[int, ...]], tuple[int, ...] | None]
"""A word in pieces of the second vocabulary in those of the first; None where there are none."""


class Mixing:
    """From rows in the second vocabulary to rows in both, of which the first has ``first`` pieces.

    With the probability ``share`` a word stays as it is, piece p as the number ``first`` + p; any
    other is cut anew, where it can be. Special pieces become those of the first.
    """

    def __init__(
        self, share: float, recut: Recut, first: int, known: "Specials", own: "Specials"
    ) -> None:
        self._share, self._recut, self._first, self._pad = share, recut, first, known.pad
        roles = asdict(known)
        self._specials = {piece: roles[role] for role, piece in asdict(own).items()}
        self.reserved = self._specials.keys() - {own.unknown}
        """Special tokens of the second vocabulary, which a text may spell."""

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        """Rows (B, L) of as many places; what does not fit any more is cut off at their end."""
        if rows.coordinates.word is None:
            raise UserError("words of two vocabularies need rows that know where words begin")
        length = rows.pieces.shape[1]
        stays = draw.uniform(np.arange(length)) < self._share
        pieces = np.full(rows.pieces.shape, self._pad, np.int32)
        source = np.full(rows.pieces.shape, -1, np.int64)
        for row, units in enumerate(_units(rows.coordinates.word, rows.real)):
            found: list[tuple[int, int]] = []
            for start, stop, is_word in units:
                unit = tuple(rows.pieces[row, start:stop].tolist())
                found += self._said(unit, start, is_word, bool(stays[row, start]))
            kept = np.array(found[:length], np.int64).reshape(-1, 2)
            pieces[row, : len(kept)], source[row, : len(kept)] = kept.T
        special = np.where(source < 0, True, np.take_along_axis(rows.special, source, axis=1))
        cut = rows.cut
        if cut is not None:
            cut = np.where(source < 0, False, np.take_along_axis(cut, source, axis=1))
        return replace(
            rows,
            pieces=pieces,
            coordinates=_moved(rows.coordinates, source),
            special=special,
            cut=cut,
        )

    def _said(
        self, unit: tuple[int, ...], start: int, is_word: bool, stays: bool
    ) -> Iterator[tuple[int, int]]:
        """The pieces of a unit, and where each of them stood, or the word that it is of."""
        cut = self._recut(unit) if is_word and not stays else None
        if cut is not None:
            yield from ((piece, start) for piece in cut)
            return
        for place, piece in enumerate(unit, start):
            number = None if is_word else self._specials.get(piece)
            yield self._first + piece if number is None else number, place


def _units(
    word: NDArray[np.int32], real: NDArray[np.bool_]
) -> Iterator[list[tuple[int, int, bool]]]:
    """Of every row the places [start, stop) of its words and of each special piece, and whether it
    is a word."""
    begins = np.ones(word.shape, np.bool_)
    begins[:, 1:] = (word[:, 1:] != word[:, :-1]) | (word[:, 1:] < 0)
    for row in range(len(word)):
        bounds = [*np.flatnonzero(begins[row]).tolist(), word.shape[1]]
        yield [
            (start, stop, bool(word[row, start] >= 0))
            for start, stop in pairwise(bounds)
            if real[row, start]
        ]


def _moved(coordinates: Coordinates, source: NDArray[np.int64]) -> Coordinates:
    """The coordinates of places that stood at ``source`` (B, L), -1 for padding."""
    known: dict[str, NDArray[Any]] = coordinates.present()
    if "document" not in known:
        known = {**known, "document": np.zeros(source.shape, np.int32)}
    moved = {
        name: np.where(
            source < 0,
            values.dtype.type(-1 if name in OF_NONE else 0),
            np.take_along_axis(values, np.maximum(source, 0), axis=1),
        )
        for name, values in known.items()
    }
    if "position" in moved:
        moved["position"] = _counted(moved["document"])
    return Coordinates(**moved)


def _counted(document: NDArray[np.int32]) -> NDArray[np.int32]:
    """Positions (B, L) from the beginning of each document, 0 in padding."""
    places = np.arange(document.shape[1], dtype=np.int32)
    begins = np.ones(document.shape, np.bool_)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    head = np.maximum.accumulate(np.where(begins, places, np.int32(0)), axis=1)
    return np.where(document >= 0, places - head, np.int32(0))
