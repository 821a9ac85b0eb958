"""Selection: which positions of a sequence are masked.

The number of slots per sequence, m, depends only on its length and the masking rate, so shapes are
constant; a sequence with fewer selected positions is padded with *fillers* of weight 0. As in BERT,
the masking budget of a sequence is ``round(masking_rate * real tokens)``, but at least 1. Special
tokens count as real tokens, although they are never selected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.config import Config
from bertwright.core.rng import CounterRng
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule, Schedule

FILLER_POSITION = 1
"""Position of fillers; not 0, because some objectives read the position before it."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedPositions:
    """The selected positions of every sequence, in ascending order.

    - ``positions``: (B, m) int64, positions in the sequence
    - ``weights``: (B, m) float32, 1 for selected positions, 0 for fillers
    - ``unit_ids``: (B, m) int64, equal for tokens of the same selected word or span
    """

    positions: IntArray
    weights: NDArray[np.float32]
    unit_ids: IntArray

    @staticmethod
    def from_unit_ids(unit_ids: IntArray, num_slots: int) -> "SelectedPositions":
        """Return the positions with ``unit_ids`` (B, L) >= 0, at most ``num_slots`` each."""
        positions = np.full((len(unit_ids), num_slots), FILLER_POSITION, np.int64)
        weights = np.zeros((len(unit_ids), num_slots), np.float32)
        sequence, column = np.nonzero(unit_ids >= 0)
        rank = np.cumsum(unit_ids >= 0, axis=1)[sequence, column] - 1
        positions[sequence, rank] = column
        weights[sequence, rank] = 1.0
        return SelectedPositions(
            positions, weights, np.take_along_axis(unit_ids, positions, axis=1)
        )


def _check_fraction(schedule: Schedule) -> Schedule:
    lowest, highest = schedule.value_range()
    if lowest < 0.0 or highest > 1.0:
        raise ValueError(
            f"must be a fraction from 0 to 1, not {lowest if lowest < 0.0 else highest:g}"
        )
    return schedule


Fraction = Annotated[NumberOrSchedule, AfterValidator(_check_fraction)]


class MaskSelection(Config):
    """A selection of positions to mask, a fraction ``masking_rate`` of real tokens (BERT: 0.15)."""

    masking_rate: Fraction = Field(default=ConstantSchedule(value=0.15))

    data_requirements: ClassVar[frozenset[DataRequirement]] = frozenset()
    """Annotations that the selection needs and not every data set has."""

    @property
    def max_masking_rate(self) -> float:
        """Return the maximum masking rate at any progress of training."""
        return self.masking_rate.value_range()[1]

    def num_slots(self, length: int) -> int:
        """Return m, the number of slots for sequences of this length."""
        return count_slots(length, self.max_masking_rate)

    def select(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> SelectedPositions:
        """Select positions in every sequence; ``progress`` of training is in [0, 1]."""
        num_slots = self.num_slots(batch.token_ids.shape[1])
        num_to_mask = masking_budget(batch, self.masking_rate.at(progress), num_slots)
        return self.select_positions(batch, vocabulary, rng, num_to_mask, num_slots)

    def select_positions(
        self,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
        rng: CounterRng,
        num_to_mask: IntArray,
        num_slots: int,
    ) -> SelectedPositions:
        """Select up to ``num_to_mask`` (B, 1) positions per sequence, in ``num_slots`` slots."""
        raise TypeError(f"{type(self).__name__} is an axis, not a selection")


def count_slots(length: int, masking_rate: float) -> int:
    """Return m, the number of slots of a sequence of ``length`` at a masking rate."""
    return max(1, round(masking_rate * length))


def masking_budget(batch: SequenceBatch, masking_rate: float, num_slots: int) -> IntArray:
    """Return the number of positions to mask in each sequence, (B, 1)."""
    num_real = batch.is_real.sum(axis=1, keepdims=True)
    return np.clip(np.rint(masking_rate * num_real).astype(np.int64), 1, num_slots)


def part_numbers(length: int, parts: int) -> IntArray:
    """Return the part of each position, (length,), for ``parts`` equal parts of a sequence."""
    return np.arange(length) * parts // length


def shuffle_candidates(is_candidate: BoolArray, rng: CounterRng) -> tuple[IntArray, IntArray]:
    """Return columns in random order (B, L), candidates first, and the number of candidates (B, 1).

    Each column is stored in the low bits of its own hash, so sorting hashes sorts the columns.
    """
    columns = np.arange(is_candidate.shape[1], dtype=np.uint64)
    low = np.uint64((1 << max(1, is_candidate.shape[1] - 1).bit_length()) - 1)
    hashes = (rng.random_bits(columns) >> np.uint64(1)) & ~low | columns
    hashes = np.where(is_candidate, hashes, hashes | np.uint64(1 << 63))
    hashes.sort(axis=1)
    return (hashes & low).astype(np.int64), is_candidate.sum(axis=1, keepdims=True)


def starts_unit(unit_ids: NDArray[Any]) -> BoolArray:
    """Return where ``unit_ids`` (B, L), at least -1 each, differ from the previous position."""
    return np.diff(unit_ids, axis=1, prepend=-2) != 0


MAX_MEAN_TOKENS_PER_WORD = 10
"""Text with spaces has fewer tokens per word, even if every letter is a token."""


def is_unspaced(is_word_start: BoolArray, is_special: BoolArray) -> BoolArray:
    """Return which sequences have words of more than ten tokens on average, (B, 1).

    ``is_word_start`` (B, L) marks the first token of every word.
    """
    num_words = (is_word_start & ~is_special).sum(axis=1, keepdims=True)
    return (~is_special).sum(axis=1, keepdims=True) > MAX_MEAN_TOKENS_PER_WORD * num_words


MAX_UNUSED_FRACTION = 0.1
"""Fraction of a budget that may stay unused; beyond it, smaller units fill the budget."""


def select_whole_units(unit_ids: NDArray[Any], budget: IntArray, rng: CounterRng) -> BoolArray:
    """Select whole units in random order within a budget (B, 1); return the mask of their tokens.

    ``unit_ids`` (B, L) are the unit of each token, from 0 to L - 1, or -1 for none. The mask is
    (B, L).
    """
    num_sequences, length = unit_ids.shape
    is_candidate = unit_ids >= 0
    flat_ids = unit_ids + length * np.arange(num_sequences)[:, None]
    sizes = np.bincount(flat_ids[is_candidate], minlength=num_sequences * length).reshape(
        unit_ids.shape
    )
    order, _ = shuffle_candidates(sizes > 0, rng)
    fits = fits_in_budget(np.take_along_axis(sizes, order, 1), budget)
    is_taken = np.zeros(unit_ids.shape, np.bool_)
    np.put_along_axis(is_taken, order, fits, 1)
    return is_candidate & np.take_along_axis(is_taken, np.maximum(unit_ids, 0), 1)


def fill_remaining_budget(
    unit_ids: NDArray[Any],
    levels: Sequence[NDArray[Any]],
    batch: SequenceBatch,
    rng: CounterRng,
    budget: IntArray,
) -> NDArray[Any]:
    """Fill sequences that have more than a tenth of their budget (B, 1) left.

    Whole units of each level fill them, the largest units first, and finally single tokens.
    ``unit_ids`` (B, L) are the unit of each selected token, or -1 for other tokens. Return them
    with the units selected here added; ids of different levels never coincide.
    """
    length = unit_ids.shape[1]
    for depth, level in enumerate((*levels, np.arange(length)), start=1):
        remaining = budget - np.count_nonzero(unit_ids >= 0, axis=1, keepdims=True)
        is_free = (remaining > MAX_UNUSED_FRACTION * budget) & (unit_ids < 0) & ~batch.is_special
        if not is_free.any():
            break
        is_taken = select_whole_units(
            np.where(is_free, level, -1), remaining, rng.fold_in(f"level {depth}")
        )
        unit_ids = np.where(is_taken, depth * length + level, unit_ids)
    return unit_ids


def fits_in_budget(sizes: NDArray[Any], budget: IntArray) -> BoolArray:
    """Return which items (B, W), taken in order, fit in a budget (B, 1); others are skipped.

    Each round takes all items before the first one that does not fit. As that item never fits
    later, every round but the last takes at least one more item, and few rounds are needed.
    """
    is_taken = np.zeros(sizes.shape, np.bool_)
    remaining = budget
    while (open_items := (sizes > 0) & (sizes <= remaining) & ~is_taken).any():
        filled = np.cumsum(np.where(open_items, sizes, 0), axis=1)
        is_taken |= open_items & (filled <= remaining)
        remaining = budget - np.where(is_taken, sizes, 0).sum(axis=1, keepdims=True)
    return is_taken
