"""Shuffling: a few short runs of pieces change places among themselves."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, ask_pieces
from bertwright.examples.selection.choosing import FILLER, budget, in_hash_order, num_slots
from bertwright.randomness import Draw


def shuffle_runs(
    rows: Rows, kept: NDArray[np.bool_], size: int, rate: float, draw: Draw
) -> tuple[Rows, Question]:
    """Permute runs of ``size`` pieces, and ask what stood at every place of them.

    As many whole runs as cover at most ``rate`` of the real places, at least one; none of them
    holds a special token or a place of ``kept`` (B, L). No run keeps its order, though equal pieces
    may make it look so.
    """
    num_rows, length = rows.pieces.shape
    first = draw.named("first").integers(size)
    runs = (length - size + 1) // size
    if runs < 1:
        raise UserError(
            f"runs of {size} pieces are too long for rows of {length} places: set objectives."
            f"word-order.size to {(length + 1) // 2} at most"
        )
    start = first + size * np.arange(runs)
    slots = min(max(1, num_slots(length, rate) // size), start.shape[1])
    inside = start[:, :, None] + np.arange(size)
    row = np.arange(num_rows)[:, None, None]
    blocked: NDArray[np.bool_] = (rows.special | kept)[row, inside]
    free = np.logical_not(blocked.any(axis=2))
    order, number = in_hash_order(free, draw.named("runs"))
    taken = np.arange(slots) < np.minimum(number, np.maximum(budget(rows, rate, length) // size, 1))
    run = np.take_along_axis(inside, order[:, :slots, None], axis=1)
    source = np.take_along_axis(run, _permutations(run, draw.named("permutation")), axis=2)

    pieces = rows.pieces.copy()
    moved = np.broadcast_to(taken[:, :, None], run.shape)
    of_row = np.nonzero(moved)[0]
    pieces[of_row, run[moved]] = rows.pieces[of_row, source[moved]]
    where = np.where(taken[:, :, None], run, FILLER).reshape(num_rows, -1)
    weight = np.repeat(taken, size, axis=1).astype(np.float32)
    return replace(rows, pieces=pieces), ask_pieces(rows, where, weight)


def _permutations(run: NDArray[np.int64], draw: Draw) -> NDArray[np.int64]:
    """A permutation other than the identity for every run (B, R, size)."""
    size = run.shape[2]
    drawn = draw.bits(run.reshape(len(run), -1)).reshape(run.shape)
    permutation = np.argsort(drawn, axis=2)
    identity = (permutation == np.arange(size)).all(axis=2, keepdims=True)
    return np.where(identity, np.roll(permutation, 1, axis=2), permutation)
