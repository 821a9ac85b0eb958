"""Training steps of any recipe as a contestant: its own batches, questions and optimiser."""

import json
import sys
from pathlib import Path

from bertwright.bench.ours import FOREVER, Laps
from bertwright.bench.turns import Turns
from bertwright.examples.batches import Batch
from bertwright.machine.process import tune_process
from bertwright.machine.speed import usual_precision
from bertwright.recipes import Recipe
from bertwright.recipes.evened import evened
from bertwright.text.shards import Data
from bertwright.training.clock import Clock
from bertwright.training.loop import Job, train
from bertwright.training.recipe_job import recipe_job
from bertwright.training.run_folder import fitted

LENGTH, BATCH_TOKENS = 128, 4096

PLAIN = "plain"
"""The contestant that all others are held against: masked language modelling and nothing else."""


def recipe_of(system: str, size: str, kind: str) -> Recipe:
    """A system in a size, on the same rows and batches as all; ``plain`` is the masked one."""
    if system == PLAIN:
        return evened("roberta", size, kind, LENGTH, BATCH_TOKENS, "phases=[{}]")
    return evened(system, size, kind, LENGTH, BATCH_TOKENS, "phases=[{}]")


def job(recipe: Recipe, data: Data, turns: Turns, compiled: bool) -> Job[Batch]:
    """Return the training of a recipe without end, at the pace of the turns."""
    precision = recipe.precision or usual_precision()
    training = recipe_job(recipe, data, precision, Clock(FOREVER), [Laps(turns)])
    if compiled:
        training.compile()
    return training


def main() -> None:
    """Be a contestant: ``python -m bertwright.bench.recipe_steps '{"system": ..., ...}'``."""
    tune_process()
    settings = json.loads(sys.argv[1])
    turns = Turns.over_standard_streams("cpu")
    data = Data.open(Path(settings["data"]))
    recipe = recipe_of(settings["system"], settings["size"], data.manifest.tokenizer.kind)
    turns.mixed = len(recipe.turns_of(len(recipe.phases) - 1)) > 1
    train(job(fitted(recipe, data), data, turns, settings["compiled"]))


if __name__ == "__main__":
    main()
