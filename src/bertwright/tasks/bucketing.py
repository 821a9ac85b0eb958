"""Rows of like length together: which rows a step trains on, as a pure function of where it is.

A few lengths are chosen so that rounding every row up to the next of them wastes least. Within an
epoch rows are shuffled, sorted by rounded length and cut into batches, and the batches are
shuffled. So a step has one of a few shapes, and no state is kept between steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertwright.randomness import key, uniform

MULTIPLE = 4
"""Lengths are multiples of this: what matrix products like."""

MOST_LENGTHS = 8
"""More than this many lengths save little padding."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class StepRows:
    """The rows of one step.

    ``numbers`` (B,): the last ``B - num_real`` are fillers, so that every step has as many rows.
    """

    numbers: Integers
    num_real: int
    length: int


@dataclass(frozen=True)
class BatchPlan:
    """The batches of a fine-tuning run; ``lengths`` (N,) are those of the rows, rounded up."""

    lengths: Integers
    batch: int
    seed: int = 0
    _epochs: dict[int, tuple[Integers, Integers]] = field(
        default_factory=dict, init=False, repr=False
    )

    @staticmethod
    def of(lengths: Sequence[int], batch: int, seed: int = 0) -> "BatchPlan":
        """A plan for rows of these lengths."""
        chosen = np.array(few_lengths(lengths, MOST_LENGTHS))
        rounded = chosen[np.searchsorted(chosen, np.asarray(lengths))]
        return BatchPlan(rounded, min(batch, len(lengths)), seed)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps see every row once."""
        return -(-len(self.lengths) // self.batch)

    @property
    def places_per_epoch(self) -> int:
        """Places of all batches of an epoch, padding and fillers included: what it costs."""
        return sum(self.at(step).length * self.batch for step in range(self.steps_per_epoch))

    def at(self, step: int) -> StepRows:
        """The rows of a step of the run."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if epoch not in self._epochs:
            self._epochs.clear()
            self._epochs[epoch] = self._order(epoch)
        order, batches = self._epochs[epoch]
        start = int(batches[within]) * self.batch
        real = order[start : start + self.batch]
        return StepRows(np.resize(real, self.batch), len(real), int(self.lengths[real].max()))

    def _order(self, epoch: int) -> tuple[Integers, Integers]:
        """The rows (N,) as they are cut into batches, and the order of the batches."""
        rows, steps = np.arange(len(self.lengths)), np.arange(self.steps_per_epoch)
        within = uniform(key(self.seed, "finetuning", "rows"), epoch, rows)
        among = uniform(key(self.seed, "finetuning", "batches"), epoch, steps)
        return np.lexsort((within, self.lengths)), np.argsort(among)


def few_lengths(lengths: Sequence[int], most: int) -> list[int]:
    """At most ``most`` multiples of four, the least padding for rows of these lengths.

    By dynamic programming over the rounded lengths: the cheapest way to cover all rows up to each
    of them with one length more.
    """
    rounded = -(-np.asarray(lengths) // MULTIPLE) * MULTIPLE
    candidates, counts = np.unique(rounded, return_counts=True)
    below = np.concatenate(([0], np.cumsum(counts)))
    costs: list[float] = [0.0] + [float("inf")] * len(candidates)
    chosen: list[list[int]] = [[] for _ in costs]
    for _ in range(most):
        new_costs, new_chosen = list(costs), list(chosen)
        for stop in range(1, len(costs)):
            top = int(candidates[stop - 1])
            for start in range(stop):
                cost = costs[start] + top * float(below[stop] - below[start])
                if cost < new_costs[stop]:
                    new_costs[stop], new_chosen[stop] = cost, [*chosen[start], top]
        costs, chosen = new_costs, new_chosen
    return chosen[-1]
