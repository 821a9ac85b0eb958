"""Rows of like length together: which rows a step trains on, as a pure function of where it is.

Within an epoch rows are shuffled and cut into groups of some steps; the rows of a group are sorted
by length and cut into batches, and the batches of all groups are shuffled. So a batch is hardly
longer than its rows, these are others in every epoch, and no state is kept between steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertwright.randomness import key, uniform

GROUP_STEPS = 50
"""At most so many steps are sorted together: more of them would be alike in every epoch."""

FINE_LENGTH = 32
"""Batches up to here are as long as their longest row; those of up to twice as much are rounded up
to multiples of two, and so on: little padding, and few shapes."""

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
    """The batches of a fine-tuning run; ``lengths`` (N,) are those of the rows."""

    lengths: Integers
    batch: int
    seed: int = 0
    _epochs: dict[int, tuple[Integers, Integers]] = field(
        default_factory=dict, init=False, repr=False
    )

    @staticmethod
    def of(lengths: Sequence[int], batch: int, seed: int = 0) -> "BatchPlan":
        """A plan for rows of these lengths."""
        return BatchPlan(np.asarray(lengths), min(batch, len(lengths)), seed)

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
        length = min(rounded_up(int(self.lengths[real].max())), int(self.lengths.max()))
        return StepRows(np.resize(real, self.batch), len(real), length)

    def _order(self, epoch: int) -> tuple[Integers, Integers]:
        """The rows (N,) as they are cut into batches, and the order of the batches."""
        rows, steps = np.arange(len(self.lengths)), np.arange(self.steps_per_epoch)
        shuffled = uniform(key(self.seed, "finetuning", "rows"), epoch, rows).argsort().argsort()
        num_groups = -(-len(steps) // GROUP_STEPS)
        group = shuffled // (-(-len(steps) // num_groups) * self.batch)
        among = uniform(key(self.seed, "finetuning", "batches"), epoch, steps)
        return np.lexsort((shuffled, self.lengths, group)), among.argsort()


def rounded_up(length: int) -> int:
    """The length of a batch whose longest row is as long as this."""
    multiple = 1 << max((length - 1).bit_length() - FINE_LENGTH.bit_length() + 1, 0)
    return -(-length // multiple) * multiple
