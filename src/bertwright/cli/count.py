"""``bertwright count``: what a recipe weighs and costs."""

import math
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.cli.recipes import Overrides


def count(
    name: str,
    changes: Overrides = None,
    gpu: Annotated[str, typer.Option(help="The GPU to count hours on.")] = "a100",
    utilisation: Annotated[float, typer.Option(help="Share of the GPU's peak reached.")] = 0.4,
    price: Annotated[float, typer.Option(help="Dollars for an hour of it.")] = 2.0,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Count parameters, arithmetic, memory, and the cost of the published training."""
    from bertwright.errors import UserError
    from bertwright.model import counting
    from bertwright.model.hardware import hours
    from bertwright.recipes import Recipe

    if not 0.0 <= price < math.inf:
        raise UserError(f"--price is {price}: what an hour costs is 0 or more")
    recipe = Recipe.load(name, *(changes or []))
    parts = counting.parameters_by_part(recipe)
    arithmetic = counting.arithmetic(recipe)
    operations = counting.training_arithmetic(recipe)
    time = hours(operations, gpu, utilisation)
    report(
        {
            "recipe": recipe.name,
            "parameters": sum(parts.values()),
            "parameters_by_part": parts,
            "flops_per_token": arithmetic.forward,
            "flops_per_token_training": arithmetic.training,
            "share_of_width": arithmetic.width / arithmetic.forward,
            "share_of_length": arithmetic.length / arithmetic.forward,
            "share_of_vocabulary": arithmetic.vocabulary / arithmetic.forward,
            "memory_to_train_bytes": counting.training_memory(recipe),
            "published_training": {
                "steps": recipe.steps,
                "flops": operations,
                "gpu": gpu,
                "utilisation": utilisation,
                "hours": time,
                "dollars": time * price,
            },
        },
        as_json,
    )
