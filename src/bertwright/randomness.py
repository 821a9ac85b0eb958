"""Randomness as a function of where it happens.

Every random number is a hash of (seed, purpose, coordinates): the masks of sample 17 in epoch 3 are
the same whoever draws them, in whatever order, in whatever process. So there is no state to save.
The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from heapq import nsmallest
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Counters = NDArray[np.integer[Any]] | int

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK_64 = (1 << 64) - 1


def key(seed: int, *purpose: str | int) -> int:
    """A 64-bit key for one purpose, e.g. ``key(seed, "corruption", "replace")``."""
    text = "\x00".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def bits(of: int, *coordinates: Counters) -> NDArray[np.uint64]:
    """64 random bits for every (broadcast) tuple of integer coordinates."""
    state = np.asarray(of & _MASK_64, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for coordinate in coordinates:
            counter = np.asarray(coordinate).astype(np.uint64)
            state = _mix(state ^ _mix(counter + _GOLDEN))
        return _mix(state + _GOLDEN)


def uniform(of: int, *coordinates: Counters) -> NDArray[np.float64]:
    """A uniform number in [0, 1) for every tuple of coordinates."""
    return (bits(of, *coordinates) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(of: int, bound: Counters, *coordinates: Counters) -> NDArray[np.int64]:
    """An integer in [0, bound) for every tuple of coordinates."""
    return (uniform(of, *coordinates) * np.asarray(bound)).astype(np.int64)


def generator(of: int, *coordinates: int) -> np.random.Generator:
    """A numpy generator of its own for one tuple of coordinates, for draws of unknown number."""
    return np.random.Generator(np.random.Philox(key=int(bits(of, *coordinates))))


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Random numbers for a batch of rows, and for the places in them.

    They depend on a key, on which rows these are (``epoch`` and ``index``, numbers or arrays (B,)),
    and on the places that are given, which broadcast to (B, m).
    """

    key: int
    epoch: Counters = 0
    index: Counters = 0

    def named(self, *purpose: str | int) -> "Draw":
        """Other numbers for the same rows."""
        return replace(self, key=key(self.key, *purpose))

    def in_epoch(self, epoch: Counters) -> "Draw":
        """The numbers of another epoch."""
        return replace(self, epoch=epoch)

    def bits(self, *places: Counters) -> NDArray[np.uint64]:
        """64 random bits each."""
        return bits(self.key, *self._rows, *places)

    def uniform(self, *places: Counters) -> NDArray[np.float64]:
        """Numbers in [0, 1)."""
        return uniform(self.key, *self._rows, *places)

    def integers(self, bound: Counters, *places: Counters) -> NDArray[np.int64]:
        """Integers in [0, bound)."""
        return integers(self.key, bound, *self._rows, *places)

    @property
    def _rows(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.reshape(self.epoch, (-1, 1)), np.reshape(self.index, (-1, 1))


Thing = TypeVar("Thing")


def sample(things: Iterable[Thing], number: int) -> list[Thing]:
    """So many of them, from all over, or all; the same ones every time.

    No more than these are held at once.
    """
    chance = generator(key(0, "sample"))
    drawn = ((chance.random(), place, each) for place, each in enumerate(things))
    return [each for _, _, each in nsmallest(number, drawn)]


class Permutation:
    """A permutation of range(size) evaluated point by point, in O(1) memory.

    A balanced Feistel network over the next even power of two, walked until it lands in the range
    (Black and Rogaway 2002): a shuffle without a shuffle buffer.
    """

    ROUNDS = 6

    def __init__(self, size: int, of: int) -> None:
        if size < 1:
            raise ValueError(f"a permutation needs at least one element, got {size}")
        self.size = size
        half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self._half_bits = np.uint64(half_bits)
        self._half_mask = np.uint64((1 << half_bits) - 1)
        self._keys = [key(of, "feistel", r) for r in range(self.ROUNDS)]

    def __call__(self, index: Counters) -> NDArray[np.int64]:
        """Where each index of [0, size) goes."""
        place = self._once(np.atleast_1d(np.asarray(index)).astype(np.uint64))
        while (outside := place >= self.size).any():
            place[outside] = self._once(place[outside])
        return place.astype(np.int64).reshape(np.shape(index))

    def _once(self, place: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = place >> self._half_bits, place & self._half_mask
        for round_key in self._keys:
            left, right = right, left ^ (bits(round_key, right.astype(np.int64)) & self._half_mask)
        return (left << self._half_bits) | right


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


def round_by_round(
    order: Callable[[int], Permutation], number: NDArray[np.int64], place: NDArray[np.int64]
) -> NDArray[np.int64]:
    """What stands at each place of the round of this number, every round in an order of its own."""
    found = np.empty_like(place)
    for each in np.unique(number).tolist():
        mine = number == each
        found[mine] = order(each)(place[mine])
    return found
