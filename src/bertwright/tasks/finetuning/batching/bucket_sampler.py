"""Batches of items of similar length, as a pure function of the step.

Within an epoch, items are shuffled and split into groups of several steps; the items of a group are
sorted by length and split into batches, and the batches of all groups are shuffled. Batches thus
have little padding and differ between epochs, and no state is kept between steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.core.rng import stream_key, uniform

STEPS_PER_BUCKET = 50
"""Maximum number of steps sorted together; with more, batches would repeat between epochs."""

MAX_EXACT_LENGTH = 32
"""Batches up to this length have the length of their longest item; up to twice this length they are
rounded up to multiples of two, and so on: little padding, and few shapes."""

IntArray = NDArray[np.int64]

Batching = Literal["buckets", "packed", "padded"]
"""How items form batches: items of similar length, or random ones, packed in rows or padded."""


@dataclass(frozen=True)
class StepItems:
    """The items of one step.

    ``item_indices`` (B,): the last ``B - num_real`` are fillers, so that all steps have equal size.
    """

    item_indices: IntArray
    num_real: int
    length: int


@dataclass(frozen=True)
class BucketBatchSampler:
    """Batches of items of similar length; ``lengths`` (N,) holds the length of each item.

    ``steps_per_bucket`` is the number of steps that are sorted together; with 1, batches are random
    samples.
    """

    lengths: IntArray
    batch_size: int
    seed: int = 0
    steps_per_bucket: int = STEPS_PER_BUCKET
    _epochs: dict[int, tuple[IntArray, IntArray]] = field(
        default_factory=dict, init=False, repr=False
    )

    @staticmethod
    def from_lengths(
        lengths: Sequence[int],
        batch_size: int,
        seed: int = 0,
        steps_per_bucket: int = STEPS_PER_BUCKET,
    ) -> "BucketBatchSampler":
        """Return a sampler for items of these lengths."""
        return BucketBatchSampler(
            np.asarray(lengths), min(batch_size, len(lengths)), seed, steps_per_bucket
        )

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps per epoch."""
        return -(-len(self.lengths) // self.batch_size)

    @property
    def positions_per_epoch(self) -> int:
        """Number of positions computed per epoch, padding and fillers included."""
        return sum(self.at(step).length * self.batch_size for step in range(self.steps_per_epoch))

    def at(self, step: int) -> StepItems:
        """Return the items of a step of the run."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        if epoch not in self._epochs:
            self._epochs.clear()
            self._epochs[epoch] = self._epoch_order(epoch)
        order, batches = self._epochs[epoch]
        start = int(batches[step_in_epoch]) * self.batch_size
        real = order[start : start + self.batch_size]
        length = min(round_up_length(int(self.lengths[real].max())), int(self.lengths.max()))
        return StepItems(np.resize(real, self.batch_size), len(real), length)

    def _epoch_order(self, epoch: int) -> tuple[IntArray, IntArray]:
        """Return the order of the items (N,), and the order of the batches."""
        items, steps = np.arange(len(self.lengths)), np.arange(self.steps_per_epoch)
        item_values = uniform(stream_key(self.seed, "finetuning", "rows"), epoch, items)
        ranks = item_values.argsort().argsort()
        num_groups = -(-len(steps) // self.steps_per_bucket)
        group = ranks // (-(-len(steps) // num_groups) * self.batch_size)
        step_values = uniform(stream_key(self.seed, "finetuning", "batches"), epoch, steps)
        return np.lexsort((ranks, self.lengths, group)), step_values.argsort()


def round_up_length(length: int) -> int:
    """Return the length of a batch, given the length of its longest item."""
    multiple = 1 << max((length - 1).bit_length() - MAX_EXACT_LENGTH.bit_length() + 1, 0)
    return -(-length // multiple) * multiple
