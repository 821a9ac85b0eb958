"""Questions: which places are asked, and what the right answers are.

A question does not know who answers. One that hides something also returns the rows to show.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.corruption import Corruption
from bertwright.examples.selection import FILLER, Selection
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """M places, the same number in every step, row after row.

    - ``where``: (M,) int64, flat places in the B * L of the rows
    - ``target``: (M,) int64, the right answers
    - ``weight``: (M,) float32, 0 for fillers, which only keep M what it is
    """

    where: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32]


def hide(
    rows: Rows,
    selection: Selection,
    corruption: Corruption,
    vocabulary: Vocabulary,
    draw: Draw,
    rate: float,
    slots: int | None = None,
) -> tuple[Rows, Question]:
    """Choose places, corrupt them, and ask for what stood there.

    ``slots`` fixes the number of questions per row where the rate varies. Returns the rows to show
    and the question.
    """
    draw = draw.in_epoch(corruption.visit(draw.epoch))
    where, weight = selection.select(rows, rate, draw.named("selection"), slots)
    shown = corruption.corrupt(rows, where, weight, vocabulary, draw.named("corruption"))
    return replace(rows, pieces=shown), _ask(rows, where, weight, shift=0)


def next_pieces(
    rows: Rows, targets_per_row: int | None = None, draw: Draw | None = None
) -> Question:
    """Ask at every place for the piece that follows it (causal language model).

    A place counts if the next one is real and of the same document; the end of a document is a
    piece to predict. ``targets_per_row`` asks only so many, evenly spread from a start that
    ``draw`` draws; None asks all L - 1, those that do not count with weight 0.
    """
    document = rows.coordinates.document
    num_rows, length = rows.pieces.shape
    counts = np.ones((num_rows, length - 1), np.bool_)
    if document is not None:
        counts = (document[:, 1:] == document[:, :-1]) & (document[:, 1:] >= 0)
    if targets_per_row is None:
        where = np.broadcast_to(np.arange(length - 1), counts.shape)
        return _ask(rows, where, counts.astype(np.float32), shift=1)
    start = (draw or Draw(0)).integers(counts.sum(axis=1, keepdims=True))
    where, weight = _evenly(counts, targets_per_row, start)
    return _ask(rows, where, weight, shift=1)


def sentence_relation(rows: Rows) -> Question:
    """Ask at the first place of each row whether its second text follows the first (BERT's NSP)."""
    if rows.relation is None:
        raise UserError(
            "next-sentence needs rows that are pairs: choose the assembly segment-pair or "
            "sentence-pair"
        )
    num_rows, length = rows.pieces.shape
    where = length * np.arange(num_rows, dtype=np.int64)
    return Question(where, rows.relation, np.ones(num_rows, np.float32))


def _ask(rows: Rows, where: NDArray[np.int64], weight: NDArray[np.float32], shift: int) -> Question:
    """The question for places (B, m) whose answer stands ``shift`` places further on."""
    num_rows, length = rows.pieces.shape
    target = np.take_along_axis(rows.pieces, where + shift, axis=1).astype(np.int64)
    flat = where + length * np.arange(num_rows)[:, None]
    return Question(flat.ravel(), target.ravel(), weight.ravel())


def _evenly(
    counts: NDArray[np.bool_], slots: int, start: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Every (number / slots)-th of the places that count, all of them where they are too few."""
    number = counts.sum(axis=1, keepdims=True)
    asked = np.minimum(number, slots)
    slot = np.arange(slots)
    nth = np.where(slot < asked, (slot * number + start) // np.maximum(asked, 1), 0)
    places = np.argsort(~counts, axis=1, kind="stable")
    where = np.where(slot < asked, np.take_along_axis(places, nth, axis=1), FILLER)
    return where, (slot < asked).astype(np.float32)
