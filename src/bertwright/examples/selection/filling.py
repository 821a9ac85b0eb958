"""Spending the budget of a sequence on whole units: words, phrases, single tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.coordinates import Rows
from bertwright.examples.selection.choosing import in_hash_order
from bertwright.randomness import Draw

SHORTFALL = 0.1
"""The fraction of a budget that may be left over before smaller units fill it."""


def whole_units(unit: NDArray[Any], budget: NDArray[np.int64], draw: Draw) -> NDArray[np.bool_]:
    """Return the tokens (B, L) of units that fit in a budget (B, 1), taken in random order.

    ``unit`` (B, L) numbers the unit of each token from 0 to L - 1, -1 for tokens of none.
    """
    num_rows, length = unit.shape
    candidate = unit >= 0
    flat = unit + length * np.arange(num_rows)[:, None]
    sizes = np.bincount(flat[candidate], minlength=num_rows * length).reshape(unit.shape)
    order, _ = in_hash_order(sizes > 0, draw)
    fits = fill(np.take_along_axis(sizes, order, 1), budget)
    taken = np.zeros(unit.shape, np.bool_)
    np.put_along_axis(taken, order, fits, 1)
    return candidate & np.take_along_axis(taken, np.maximum(unit, 0), 1)


def fill_shortfall(
    unit: NDArray[Any],
    levels: Sequence[NDArray[Any]],
    rows: Rows,
    draw: Draw,
    budget: NDArray[np.int64],
) -> NDArray[Any]:
    """Fill sequences that have more than a tenth of their budget (B, 1) left.

    Whole units of each level fill them, the largest first, and single tokens in the end. ``unit``
    (B, L) numbers what the chosen tokens were chosen with, -1 for the others. Returns the same with
    the tokens chosen here; no number stands for units of two levels.
    """
    length = unit.shape[1]
    for depth, level in enumerate((*levels, np.arange(length)), start=1):
        left = budget - np.count_nonzero(unit >= 0, axis=1, keepdims=True)
        free = (left > SHORTFALL * budget) & (unit < 0) & ~rows.special
        if not free.any():
            break
        taken = whole_units(np.where(free, level, -1), left, draw.named(f"level {depth}"))
        unit = np.where(taken, depth * length + level, unit)
    return unit


def fill(sizes: NDArray[Any], budget: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which items (B, W), in their order, fit in a budget (B, 1) when misfits are skipped.

    Each round takes all items up to the first misfit. An item that does not fit now never will, so
    every round but the last takes at least one more item, and few rounds are needed.
    """
    taken = np.zeros(sizes.shape, np.bool_)
    left = budget
    while (open_items := (sizes > 0) & (sizes <= left) & ~taken).any():
        filled = np.cumsum(np.where(open_items, sizes, 0), axis=1)
        taken |= open_items & (filled <= left)
        left = budget - np.where(taken, sizes, 0).sum(axis=1, keepdims=True)
    return taken
