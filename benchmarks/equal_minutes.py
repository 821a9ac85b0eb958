"""Equal training time as numbers of steps, from the speed of every arm.

A budget of minutes needs a machine without other work for the whole study. The speed of its arms
needs one for a few minutes; afterwards every run has a fixed number of steps, and may be stopped,
resumed and run beside others.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.recipes import Recipe
from bertwright.studies.run import prepare_corpus
from bertwright.studies.study import EqualCost, Study
from bertwright.timing.interleaved import TimedProcess

ROUND_SECONDS = 2.0
"""Approximate seconds of every arm per round."""

Log = Callable[[str], None]


def with_measured_steps(study: Study, output: Path, num_rounds: int, log: Log) -> Study:
    """Return a study of equal time with the number of steps that each arm takes in that time.

    The first arm has cost 1; the others have a factor of its tokens. ``output`` is the folder of
    the study, in which its text is prepared. Errors: UserError for a study of another equal cost,
    or with phases of different speed.
    """
    seconds = study.equal.seconds
    if seconds is None:
        raise UserError(f"study {study.name}: equal is {study.equal}: only time becomes steps")
    recipes: dict[str, tuple[Recipe, Path]] = {}
    for arm in study.arms:
        data = prepare_corpus(*study.text_of(arm), output).data
        recipe = study.recipe(arm, 0, Dataset.open(data).manifest.tokenizer.kind)
        if len(recipe.phases) > 1 or len(set(_batch_sizes(recipe))) > 1:
            raise UserError(
                f"study {study.name}: arms.{arm}: phases and growing batches have no one speed: "
                f"leave them out"
            )
        recipes[arm] = (recipe, data)
    seconds_per_step = _measure(recipes, num_rounds, log)
    tokens = {
        arm: _batch_sizes(recipes[arm][0])[0] * seconds / step
        for arm, step in seconds_per_step.items()
    }
    first = next(iter(tokens.values()))
    arms = {
        name: arm.model_copy(update={"cost": tokens[name] / first})
        for name, arm in study.arms.items()
    }
    return study.model_copy(update={"equal": EqualCost(tokens=first), "arms": arms})


def _measure(
    recipes: Mapping[str, tuple[Recipe, Path]], num_rounds: int, log: Log
) -> dict[str, float]:
    """Return the median seconds per step of every arm, over interleaved rounds."""
    with ExitStack() as stack:
        processes = {
            arm: stack.enter_context(
                TimedProcess(
                    "benchmarks.recipes.worker",
                    {"recipe": recipe.as_dict(), "data": str(data), "compiled": True},
                    os.environ,
                )
            )
            for arm, (recipe, data) in recipes.items()
        }
        steps = {
            arm: max(1, round(ROUND_SECONDS / process.seconds_per_step(2)))
            for arm, process in processes.items()
        }
        rounds = [
            {arm: process.seconds_per_step(steps[arm]) for arm, process in processes.items()}
            for _ in range(num_rounds)
        ]
    result = {arm: median(times[arm] for times in rounds) for arm in recipes}
    for arm, step in result.items():
        log(f"{arm}: {1000 * step:.0f} ms per step")
    return result


def _batch_sizes(recipe: Recipe) -> tuple[float, float]:
    """Return the smallest and the largest number of tokens of a step."""
    return recipe.batch_tokens.value_range()
