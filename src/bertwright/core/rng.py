"""Counter-based random numbers.

Every random number is a hash of (seed, stream, coordinates). The masks of sample 17 in epoch 3, for
example, do not depend on the order of the draws or on the process, and there is no state to save.
The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
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


def stream_key(seed: int, *stream: str | int) -> int:
    """Return the 64-bit key of a stream, e.g. ``stream_key(seed, "corruption", "replace")``."""
    text = "\x00".join(str(part) for part in (seed, *stream))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


STREAM_PARTS = {
    "tokens": "pieces",
    "query_vector": "asking",
    "neighbour_projection": "joining",
    "up_projection": "up",
    "sum": "join",
    "input_projection": "enter",
    "output_projection": "out",
    "shared_projection": "shared",
    "transform_and_gate": "both",
    "layer_stack": "passage",
    "halting_unit": "unit",
    "score_term": "term",
    "query_biases": "stand_ins",
    "content_bias": "key",
    "position_bias": "distance",
    "segment_scores": "segments",
    "segment_bias": "segment",
    "global_attention": "global_rows",
    "key_value": "source",
    "learned_query_key": "learned",
    "direction_layers": "ways",
    "recurrent_bias": "second_bias",
    "depth_averages": "weights",
    "logit": "out",
    "trunk": "enter",
}
"""Stream names for parts of parameter names. Changing one would change published numbers."""


def parameter_stream(name: str) -> str:
    """Return the name of the random stream that initialises a parameter."""
    first, *rest = name.split(".")
    first = "out" if first == "classifier" else STREAM_PARTS.get(first, first)
    return ".".join([first, *(STREAM_PARTS.get(part, part) for part in rest)])


def random_bits(key: int, *coordinates: Counters) -> NDArray[np.uint64]:
    """Return 64 random bits for every (broadcast) tuple of integer coordinates."""
    state = np.asarray(key & _MASK_64, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for coordinate in coordinates:
            counter = np.asarray(coordinate).astype(np.uint64)
            state = _mix(state ^ _mix(counter + _GOLDEN))
        return _mix(state + _GOLDEN)


def hash_ngrams(key: int, values: NDArray[np.integer[Any]], length: int) -> NDArray[np.uint64]:
    """Return a hash of every n-gram of ``length`` consecutive values."""
    num_ngrams = max(len(values) - length + 1, 0)
    return random_bits(key, *(values[n : n + num_ngrams] for n in range(length)))


def uniform(key: int, *coordinates: Counters) -> NDArray[np.float64]:
    """Return a uniform number in [0, 1) for every tuple of coordinates."""
    return (random_bits(key, *coordinates) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(key: int, bound: Counters, *coordinates: Counters) -> NDArray[np.int64]:
    """Return an integer in [0, bound) for every tuple of coordinates."""
    return (uniform(key, *coordinates) * np.asarray(bound)).astype(np.int64)


def generator(key: int, *coordinates: int) -> np.random.Generator:
    """Return a NumPy generator for one tuple of coordinates, for any number of draws."""
    return np.random.Generator(np.random.Philox(key=int(random_bits(key, *coordinates))))


@dataclass(frozen=True, slots=True, eq=False)
class CounterRng:
    """A counter-based random number generator for a batch of sequences.

    Numbers depend on the key, on each sequence's ``epoch`` and ``index`` (numbers or arrays (B,)),
    and on positions, which broadcast to (B, m).
    """

    key: int
    epoch: Counters = 0
    index: Counters = 0

    def fold_in(self, *stream: str | int) -> "CounterRng":
        """Return a generator of another stream for the same sequences."""
        return replace(self, key=stream_key(self.key, *stream))

    def at_epoch(self, epoch: Counters) -> "CounterRng":
        """Return the generator of another epoch."""
        return replace(self, epoch=epoch)

    def random_bits(self, *positions: Counters) -> NDArray[np.uint64]:
        """Return 64 random bits for every position."""
        return random_bits(self.key, *self._sequence_coordinates, *positions)

    def uniform(self, *positions: Counters) -> NDArray[np.float64]:
        """Return uniform numbers in [0, 1)."""
        return uniform(self.key, *self._sequence_coordinates, *positions)

    def integers(self, bound: Counters, *positions: Counters) -> NDArray[np.int64]:
        """Return integers in [0, bound)."""
        return integers(self.key, bound, *self._sequence_coordinates, *positions)

    @property
    def _sequence_coordinates(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.reshape(self.epoch, (-1, 1)), np.reshape(self.index, (-1, 1))


Item = TypeVar("Item")


def sample(items: Iterable[Item], num_samples: int) -> list[Item]:
    """Return ``num_samples`` random items (or all, if fewer), the same ones in every call.

    Only these items are held in memory.
    """
    rng = generator(stream_key(0, "sample"))
    scored = ((rng.random(), index, item) for index, item in enumerate(items))
    return [item for _, _, item in nsmallest(num_samples, scored)]


class RandomPermutation:
    """A random permutation of range(size) in O(1) memory: a shuffle without a shuffle buffer.

    A balanced Feistel network over the next even power of two is applied repeatedly until the
    result lies in the range (Black and Rogaway 2002).
    """

    NUM_ROUNDS = 6

    def __init__(self, size: int, key: int) -> None:
        if size < 1:
            raise ValueError(f"a permutation needs at least one element, got {size}")
        self.size = size
        half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self._half_bits = np.uint64(half_bits)
        self._half_mask = np.uint64((1 << half_bits) - 1)
        self._keys = [stream_key(key, "feistel", r) for r in range(self.NUM_ROUNDS)]

    def __call__(self, index: Counters) -> NDArray[np.int64]:
        """Return the permuted value of every index in [0, size)."""
        permuted = self._apply_network(np.atleast_1d(np.asarray(index)).astype(np.uint64))
        while (outside := permuted >= self.size).any():
            permuted[outside] = self._apply_network(permuted[outside])
        return permuted.astype(np.int64).reshape(np.shape(index))

    def _apply_network(self, index: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = index >> self._half_bits, index & self._half_mask
        for round_key in self._keys:
            left, right = (
                right,
                left ^ (random_bits(round_key, right.astype(np.int64)) & self._half_mask),
            )
        return (left << self._half_bits) | right


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


def permute_by_epoch(
    permutation_of: Callable[[int], RandomPermutation],
    epoch: NDArray[np.int64],
    index: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the permuted index within each epoch; every epoch has its own permutation."""
    permuted = np.empty_like(index)
    for value in np.unique(epoch).tolist():
        is_current = epoch == value
        permuted[is_current] = permutation_of(value)(index[is_current])
    return permuted
