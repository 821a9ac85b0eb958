"""Training steps of any recipe as a contestant: its own batches, questions and optimiser."""

import json
import sys
from pathlib import Path

from bertwright.bench.ours import FOREVER, Laps
from bertwright.bench.turns import Turns
from bertwright.encoder.roles import roles
from bertwright.examples.batches import Batch
from bertwright.machine import tune_process, usual_precision
from bertwright.model.model import Model
from bertwright.optimisers.parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.recipes.evened import evened
from bertwright.text.shards import Data
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock
from bertwright.training.loop import Job, train
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses
from bertwright.training.run_folder import fitted
from bertwright.training.stream_memory import StreamMemory

LENGTH, BATCH_TOKENS = 128, 4096

PLAIN = "plain"
"""The contestant that all others are held against: masked language modelling and nothing else."""


def recipe_of(system: str, size: str, kind: str) -> Recipe:
    """A system in a size, on the same rows and batches as all; ``plain`` is the masked one."""
    if system == PLAIN:
        return evened("roberta", size, kind, LENGTH, BATCH_TOKENS, "phases=[{}]")
    return evened(system, size, kind, LENGTH, BATCH_TOKENS, "phases=[{}]")


def job(recipe: Recipe, data: Data, turns: Turns, compiled: bool) -> Job[Batch]:
    """The training of a recipe without end, at the pace of the turns."""
    model = Model.build(recipe, data.tokenizer.size, data.tokenizer)
    precision = recipe.precision or usual_precision()
    parameters = MasterParameters(model, roles(model), precision)
    if compiled:
        model.compile_parts()
    batches = RecipeBatches(recipe, data)
    memory = StreamMemory(recipe.encoder.memory)
    return Job(
        parameters=parameters,
        update=recipe.optimiser.build(parameters, compiled),
        batch=batches,
        losses=RecipeLosses(recipe, model, memory=memory),
        clock=Clock(FOREVER),
        rate=recipe.schedule.at,
        weights=batches.weights,
        clip=Clipping(recipe.clip, compiled),
        procedures=[Laps(turns), memory],
    )


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
