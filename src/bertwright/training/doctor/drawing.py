"""Rows as training draws them, beside what they were before anything was hidden."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Rows
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.randomness import Permutation, key
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clock import Place
from bertwright.training.recipe_batches import RecipeBatches

PLACES = 32_768
"""Of the rows that are drawn for the checks of one phase."""


@dataclass(frozen=True)
class Drawn:
    """Some rows of one phase.

    Attributes:
        originals: what the assembly made.
        batch: what training sees of them in the first epoch.
        later: what it sees of the same rows in the next epoch.
        repeated: what it sees in the epoch that must repeat the first, None where none does.
    """

    phase: int
    originals: Rows
    batch: Batch
    later: Batch
    repeated: Batch | None


def draw(
    recipe: Recipe, data: Data, phase: int, objectives: Mapping[str, Objective] | None = None
) -> Drawn:
    """Rows from all over the training split, with questions as the middle of a phase asks them: all
    of its own, unless some are named."""
    batches = RecipeBatches(recipe, data)
    asked = recipe.objectives_of(phase) if objectives is None else objectives
    num_rows = batches.rows_in_epoch(phase, asked)
    number = min(num_rows, max(2, PLACES // recipe.assembly_of(phase).length))
    order = Permutation(num_rows, key(recipe.seed, "doctor"))
    index = order(np.arange(number))
    place = Place(0, 0.5, phase, 0.5, 0, 0.5)
    period = period_of(asked)

    def at(epoch: int) -> Batch:
        return batches.asked(place, asked, index, np.full_like(index, epoch))

    return Drawn(
        phase,
        batches.assembled(phase, asked, index, np.zeros_like(index)),
        at(0),
        at(1),
        at(period) if period is not None else None,
    )


def period_of(objectives: Mapping[str, Objective]) -> int | None:
    """After how many epochs the masks repeat; None where they are always drawn anew."""
    corruptions = (o.corruption for o in objectives.values() if isinstance(o, Masked))
    return next((c.copies for c in corruptions if c.when == "static"), None)
