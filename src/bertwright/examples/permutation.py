"""Permutation: the text keeps its places, and is predicted in another order."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
from bertwright.examples.selection import Chosen
from bertwright.randomness import Draw


def permute(rows: Rows, chosen: Chosen, draw: Draw) -> tuple[Rows, Question]:
    """Ask for the chosen places in a random order, each from what comes before it in that order.

    What is not chosen comes first and all at once, special tokens excepted, which have a turn of
    their own like the chosen (Yang et al. 2019, the released code). Behind the text stands a place
    that asks for each chosen one, at its position.
    """
    if rows.coordinates.asking is not None:
        raise UserError("only one of objectives may ask in a permuted order")
    where, weight = chosen.where, chosen.weight
    num_rows, length = rows.pieces.shape
    place = np.arange(length)
    turns = rows.special.copy()
    turns[np.nonzero(weight > 0)[0], where[weight > 0]] = True
    rank = np.argsort(np.argsort(draw.bits(place), axis=1), axis=1)
    order = np.where(turns, 1 + rank, 0).astype(np.int32)

    def behind(
        own: NDArray[np.int32] | None, filler: int, default: NDArray[np.int32] | None = None
    ) -> NDArray[np.int32] | None:
        own = default if own is None else own
        if own is None:
            return None
        asked = np.where(weight > 0, np.take_along_axis(own, where, axis=1), filler)
        return np.concatenate([own, asked.astype(np.int32)], axis=1)

    coordinates = rows.coordinates
    everywhere = np.broadcast_to(place, rows.pieces.shape).astype(np.int32)
    one_document = np.zeros(rows.pieces.shape, np.int32)
    width = length + where.shape[1]
    asking = np.tile(np.arange(width) >= length, (num_rows, 1))
    shown = behind(rows.pieces, 0)
    assert shown is not None
    extended = replace(
        coordinates,
        position=behind(coordinates.position, 0, everywhere),
        segment=behind(coordinates.segment, 0),
        document=behind(coordinates.document, -1, one_document),
        word=behind(coordinates.word, -1),
        sentence=behind(coordinates.sentence, -1),
        language=behind(coordinates.language, 0),
        phrase=behind(coordinates.phrase, -1),
        entity=behind(coordinates.entity, -1),
        capital=behind(coordinates.capital, 0),
        task=behind(coordinates.task, 0),
        order=behind(order, 0),
        asking=asking,
    )
    special = np.concatenate([rows.special, np.ones(where.shape, np.bool_)], axis=1)
    target = np.take_along_axis(rows.pieces, where, axis=1).astype(np.int64)
    shown[:, length:] = 0
    asks = length + np.arange(where.shape[1]) + width * np.arange(num_rows)[:, None]
    question = Question(asks.ravel(), target.ravel(), weight.ravel())
    return Rows(shown, extended, special, rows.relation), question
