"""Reordering: the first text of a row in parts that change places (Sun et al. 2019b, 4.2.2)."""

from dataclasses import replace
from itertools import permutations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
from bertwright.randomness import Draw


def num_orders(most: int) -> int:
    """In how many ways 1 to ``most`` parts can be ordered."""
    return sum(factorial(n) for n in range(1, most + 1))


def reorder(rows: Rows, most: int, draw: Draw) -> tuple[Rows, Question]:
    """Cut the first text of each row between sentences into 1 to ``most`` parts, as many as it has
    sentences at most; permute them; and ask the row's first place which of all orders it is.

    Orders are numbered by the number of parts, then as ``itertools.permutations`` gives them.
    """
    sentence = rows.coordinates.sentence
    if sentence is None:
        raise UserError("objectives.reordering needs rows that know where sentences begin")
    num_rows, length = rows.pieces.shape
    column = np.arange(length)
    # The first text ends at the first special token behind its beginning.
    ends = rows.special & ~rows.spelled & (column > 0)
    end = np.where(ends.any(axis=1), ends.argmax(axis=1), length)
    source = np.broadcast_to(column, rows.pieces.shape).copy()
    target = np.zeros(num_rows, np.int64)
    parts = 1 + draw.named("parts").integers(most)[:, 0]
    shares = draw.named("cuts").uniform(np.arange(most))
    chosen = draw.named("order").uniform(np.zeros(1, np.int64))[:, 0]
    for row in range(num_rows):
        text = np.flatnonzero(~rows.special[row, : end[row]])
        starts = text[1:][np.diff(sentence[row, text]) != 0]
        number = min(int(parts[row]), len(starts) + 1)
        cuts = np.sort(starts[np.argsort(_spread(shares[row], len(starts)))[: number - 1]])
        segments = np.split(text, np.searchsorted(text, cuts))
        order = int(chosen[row] * factorial(number))
        places = list(permutations(range(number)))[order]
        source[row, text] = np.concatenate([segments[n] for n in places])
        target[row] = num_orders(number - 1) + order
    where = length * np.arange(num_rows, dtype=np.int64)
    return _moved(rows, source), Question(where, target, np.ones(num_rows, np.float32))


def _spread(shares: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """As many different numbers as there are places to cut, from a few that were drawn."""
    return (shares[0] + np.arange(number) * (0.38196601125 + shares[-1])) % 1.0


def _moved(rows: Rows, source: NDArray[np.int64]) -> Rows:
    """Rows in which each place holds what stood at ``source`` (B, L)."""

    def at(values: NDArray[np.int32] | None) -> NDArray[np.int32] | None:
        return None if values is None else np.take_along_axis(values, source, axis=1)

    known = rows.coordinates
    coordinates = replace(
        known,
        word=at(known.word),
        sentence=at(known.sentence),
        phrase=at(known.phrase),
        entity=at(known.entity),
        capital=at(known.capital),
        elsewhere=at(known.elsewhere),
    )
    pieces = np.take_along_axis(rows.pieces, source, axis=1)
    return replace(rows, pieces=pieces, coordinates=coordinates)
