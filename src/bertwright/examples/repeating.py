"""Repeating: the first text of a row, and behind it the same again (Dai and Le 2015, section 2)."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.coordinates import OF_NONE, Coordinates, Rows
from bertwright.examples.questions import Question, ask_pieces
from bertwright.examples.selection import FILLER
from bertwright.examples.vocabulary import Vocabulary


def repeat(rows: Rows, backwards: bool, vocabulary: Vocabulary) -> tuple[Rows, Question]:
    """As much of the first text of each row as fits into its half, ``backwards`` or not, then the
    same again, then padding; and every place of the repetition but the last is asked for the piece
    after it."""
    length = rows.pieces.shape[1]
    document = rows.coordinates.document
    first = rows.real if document is None else rows.real & (document == document[:, :1])
    size = np.minimum(first.sum(axis=1, keepdims=True), length // 2)
    place = np.arange(length)
    again, padding = place >= size, place >= 2 * size
    source = np.where(again, place - size, size - 1 - place if backwards else place)
    source = np.where(padding, 0, source)

    def at(name: str, values: NDArray[Any]) -> NDArray[Any]:
        moved = np.take_along_axis(values, source, axis=1)
        return np.where(padding, -1 if name in OF_NONE else 0, moved).astype(values.dtype)

    known = {name: at(name, values) for name, values in rows.coordinates.present().items()}
    known["document"] = np.where(padding, -1, 0).astype(np.int32)
    known["position"] = np.where(padding, 0, place).astype(np.int32)
    pieces = np.take_along_axis(rows.pieces, source, axis=1)
    repeated = replace(
        rows,
        pieces=np.where(padding, vocabulary.specials.pad, pieces).astype(np.int32),
        coordinates=Coordinates(**known),
        special=np.take_along_axis(rows.special, source, axis=1) | padding,
        cut=None,
    )
    asked = np.arange(length // 2 - 1)
    counts = asked < size - 1
    where = np.where(counts, size + asked, FILLER)
    counts &= ~np.take_along_axis(repeated.spelled, where + 1, axis=1)
    return repeated, ask_pieces(repeated, where, counts.astype(np.float32), shift=1)
