"""Permutation: the text keeps its places, and is predicted in another order."""

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import OF_NONE, Coordinates, Rows
from bertwright.examples.questions import Question
from bertwright.examples.selection import Chosen
from bertwright.randomness import Draw


def random_order(rows: Rows, chosen: Chosen, draw: Draw) -> NDArray[np.int32]:
    """The turn (B, L) of every place: what is not chosen comes first and all at once, special
    tokens excepted, which have a turn of their own like the chosen (Yang et al. 2019, the released
    code)."""
    place = np.arange(rows.pieces.shape[1])
    turns = rows.special.copy()
    turns[np.nonzero(chosen.weight > 0)[0], chosen.where[chosen.weight > 0]] = True
    rank = np.argsort(np.argsort(draw.bits(place), axis=1), axis=1)
    return np.where(turns, 1 + rank, 0).astype(np.int32)


def permute(rows: Rows, chosen: Chosen, order: NDArray[np.int32]) -> tuple[Rows, Question]:
    """Ask for the chosen places, each from what comes before it in an ``order`` (B, L).

    Behind the text stands a place that asks for each chosen one, at its position.
    """
    if rows.coordinates.asking is not None:
        raise UserError("only one of objectives may ask in a permuted order")
    where, weight = chosen.where, chosen.weight
    num_rows, length = rows.pieces.shape

    def behind(own: NDArray[np.int32], filler: int) -> NDArray[np.int32]:
        asked = np.where(weight > 0, np.take_along_axis(own, where, axis=1), filler)
        return np.concatenate([own, asked.astype(np.int32)], axis=1)

    coordinates = rows.coordinates
    everywhere = np.broadcast_to(np.arange(length), rows.pieces.shape).astype(np.int32)
    width = length + where.shape[1]
    asking = np.tile(np.arange(width) >= length, (num_rows, 1))
    known = {
        "position": everywhere,
        "document": np.zeros(rows.pieces.shape, np.int32),
        **coordinates.present(),
        "order": order,
    }
    extended = {name: behind(own, -1 if name in OF_NONE else 0) for name, own in known.items()}
    special = np.concatenate([rows.special, np.ones(where.shape, np.bool_)], axis=1)
    target = np.take_along_axis(rows.pieces, where, axis=1).astype(np.int64)
    shown = np.pad(rows.pieces, ((0, 0), (0, where.shape[1])))
    asks = length + np.arange(where.shape[1]) + width * np.arange(num_rows)[:, None]
    question = Question(asks.ravel(), target.ravel(), weight.ravel())
    return Rows(shown, Coordinates(**extended, asking=asking), special, rows.relation), question
