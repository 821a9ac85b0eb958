"""Sampled batches, with the same sequences before masking."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bertwright.batches.batch import Batch
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.rng import RandomPermutation, stream_key
from bertwright.data.shards.dataset import Dataset
from bertwright.objectives.objective import Objective
from bertwright.recipes import Recipe
from bertwright.training.clock import Progress
from bertwright.training.pretraining_batches import PretrainingBatches

NUM_POSITIONS = 32_768
"""Positions sampled per phase."""


@dataclass(frozen=True)
class SampledBatches:
    """Some sequences of one phase.

    Attributes:
        originals: the sequences before masking.
        batch: the batch of the first epoch.
        next_epoch: the same sequences in the next epoch.
        repeated_epoch: the same sequences when static masks must repeat; None for dynamic masks.
    """

    phase: int
    originals: SequenceBatch
    batch: Batch
    next_epoch: Batch
    repeated_epoch: Batch | None = None


def sample_batches(
    recipe: Recipe, data: Dataset, phase: int, objectives: Mapping[str, Objective] | None = None
) -> SampledBatches:
    """Sample training sequences with the targets of the middle of a phase.

    ``objectives`` defaults to all objectives of the phase.
    """
    batches = PretrainingBatches(recipe, data)
    objectives = recipe.objectives_of(phase) if objectives is None else objectives
    epoch_size = batches.epoch_size(phase, objectives)
    number = min(epoch_size, max(2, NUM_POSITIONS // recipe.input_format_of(phase).length))
    order = RandomPermutation(epoch_size, stream_key(recipe.seed, "doctor"))
    index = order(np.arange(number))
    progress = Progress(0, 0.5, phase, 0.5, 0, 0.5)
    period = masking_period(objectives)

    def batch_at(epoch: int) -> Batch:
        return batches.make_batch(progress, objectives, index, np.full_like(index, epoch))

    return SampledBatches(
        phase,
        batches.unmasked_sequences(phase, objectives, index, np.zeros_like(index)),
        batch_at(0),
        batch_at(1),
        batch_at(period) if period is not None else None,
    )


def masking_period(objectives: Mapping[str, Objective]) -> int | None:
    """Return the number of epochs after which masks repeat; None for dynamic masks."""
    corruptions = (objective.token_corruption for objective in objectives.values())
    return next((c.copies for c in corruptions if c is not None and c.when == "static"), None)
