"""``bertwright count``: parameters, FLOPs, memory and cost of a recipe."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from bertwright.cli.options import PluginOption
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.verbs.recipes import OverridesArgument


def count(
    recipe: str,
    overrides: OverridesArgument = None,
    gpu: Annotated[str, typer.Option(help="GPU to estimate training time for.")] = "a100",
    utilisation: Annotated[
        float, typer.Option(help="Fraction of the GPU's peak FLOPs that training reaches.")
    ] = 0.4,
    price: Annotated[float, typer.Option(help="Dollars per GPU hour.")] = 2.0,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the parameters, FLOPs, memory and training cost of a recipe."""
    from bertwright.core.errors import UserError
    from bertwright.models import costs
    from bertwright.recipes import Recipe

    if not 0.0 <= price < math.inf:
        raise UserError(f"--price {price}: a price per hour is 0 or more")
    resolved = Recipe.load(recipe, *(overrides or []))
    parts = costs.num_parameters_by_part(resolved)
    flops = costs.flops_per_token(resolved)
    training_flops = costs.training_flops(resolved)
    hours = costs.training_hours(training_flops, gpu, utilisation)
    result = {
        "recipe": resolved.name,
        "parameters": sum(parts.values()),
        "parameters_by_part": parts,
        "flops_per_token": flops.forward,
        "training_flops_per_token": flops.training,
        "width_fraction": flops.projections / flops.forward,
        "length_fraction": flops.attention / flops.forward,
        "vocabulary_fraction": flops.vocabulary / flops.forward,
        "training_memory_bytes": costs.training_memory_bytes(resolved),
        "published_training": {
            "steps": resolved.steps,
            "flops": training_flops,
            "gpu": gpu,
            "utilisation": utilisation,
            "hours": hours,
            "dollars": hours * price,
        },
    }
    print_result(result if as_json else _readable_costs(result), as_json)


def _readable_costs(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the costs with units; JSON has the numbers themselves."""
    from bertwright.core.quantities import (
        readable_bytes,
        readable_count,
        readable_flops,
        readable_fraction,
    )

    training = result["published_training"]
    parts = result["parameters_by_part"].items()
    return {
        "recipe": result["recipe"],
        "size": f"{readable_count(result['parameters'], 'parameters')} ({result['parameters']:,})",
        "parameters": {part: readable_count(number) for part, number in parts},
        "prediction": f"{readable_flops(result['flops_per_token'])} per token",
        "training": f"{readable_flops(result['training_flops_per_token'])} per token",
        "part of the prediction": {
            "that grows with the width": readable_fraction(result["width_fraction"]),
            "that grows with the length": readable_fraction(result["length_fraction"]),
            "of the vocabulary": readable_fraction(result["vocabulary_fraction"]),
        },
        "training memory": readable_bytes(result["training_memory_bytes"]),
        "published training": {
            "steps": training["steps"],
            "computation": readable_flops(training["flops"]),
            "time": f"{training['hours']:,.1f} hours on one {training['gpu']} at "
            f"{readable_fraction(training['utilisation'])} of its peak",
            "price": f"{training['dollars']:,.2f} dollars",
        },
    }
