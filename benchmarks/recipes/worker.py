"""Worker process that trains any recipe with its batches, objectives and optimiser."""

import json
import sys
from pathlib import Path

from benchmarks.pretraining.bertwright_worker import NUM_STEPS, StepTimerCallback
from bertwright.batches.batch import Batch
from bertwright.data.shards.dataset import Dataset
from bertwright.recipes import Recipe
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.runtime.process import configure_process
from bertwright.timing.interleaved import StepTimer
from bertwright.training.clock import TrainingClock
from bertwright.training.loop import TrainingJob, train
from bertwright.training.pretraining.job import untrained_job
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from experiments.equalised import equalised_recipe

SEQUENCE_LENGTH, BATCH_TOKENS = 128, 4096

MASKED_LM_BASELINE = "plain"
"""Name of the baseline: masked language modelling only."""


def load_recipe(system: str, size: str, tokenizer_kind: str) -> Recipe:
    """Return a system in a size, with the sequence length and batch of all."""
    name = "roberta" if system == MASKED_LM_BASELINE else system
    return equalised_recipe(
        name, size, tokenizer_kind, SEQUENCE_LENGTH, BATCH_TOKENS, "phases=[{}]"
    )


def training_job(
    recipe: Recipe, data: Dataset, timer: StepTimer, is_compiled: bool
) -> TrainingJob[Batch]:
    """Return an endless training of a recipe, at the pace of the timer."""
    precision = recipe.precision or default_precision()
    job = untrained_job(
        recipe, data, precision, TrainingClock(NUM_STEPS), [StepTimerCallback(timer)]
    )
    if is_compiled:
        job.compile()
    return job


def main() -> None:
    """Run a worker: ``python -m benchmarks.recipes.worker '{"system": ..., ...}'``.

    The settings are ``data``, ``compiled``, and either ``system`` and ``size`` or a whole
    ``recipe``.
    """
    configure_process()
    settings = json.loads(sys.argv[1])
    timer = StepTimer.from_standard_streams("cpu")
    data = Dataset.open(Path(settings["data"]))
    if "recipe" in settings:
        recipe = Recipe.model_validate(settings["recipe"])
    else:
        recipe = load_recipe(settings["system"], settings["size"], data.manifest.tokenizer.kind)
    timer.has_mixed_steps = len(recipe.objective_schedule(len(recipe.phases) - 1)) > 1
    train(training_job(fit_recipe_to_data(recipe, data), data, timer, settings["compiled"]))


if __name__ == "__main__":
    main()
