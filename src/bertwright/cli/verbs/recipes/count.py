"""``bertwright count``: parameters, FLOPs, memory and cost of a recipe."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.cli.options import PluginOption
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.verbs.recipes.recipes import OverridesArgument


def count(
    recipe: str,
    overrides: OverridesArgument = None,
    gpu: Annotated[str, typer.Option(help="GPU to estimate training time for.")] = "a100",
    utilisation: Annotated[
        float, typer.Option(help="Fraction of the GPU's peak FLOPs that training reaches.")
    ] = 0.4,
    devices: Annotated[
        int,
        typer.Option(min=1, help="Number of GPUs that share the model and the batch (--shard)."),
    ] = 1,
    text_gigabytes: Annotated[
        float | None,
        typer.Option(help="Also count the tokens and shards of this much text, like --data."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Prepared sample of the text, a few megabytes.")
    ] = None,
    price: Annotated[float, typer.Option(help="Dollars per GPU hour.")] = 2.0,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the parameters, FLOPs, memory and training cost of a recipe."""
    from bertwright.core.errors import UserError
    from bertwright.data.shards.dataset import Dataset
    from bertwright.models import costs
    from bertwright.models.scale import sharded_memory, text_scale
    from bertwright.recipes import Recipe

    if not 0.0 <= price < math.inf:
        raise UserError(f"--price {price}: a price per hour is 0 or more")
    resolved = Recipe.load(recipe, *(overrides or []))
    parts = costs.num_parameters_by_part(resolved)
    flops = costs.flops_per_token(resolved)
    training_flops = costs.training_flops(resolved)
    hours = costs.training_hours(training_flops, gpu, utilisation) / devices
    if text_gigabytes is not None and not 0.0 < text_gigabytes < math.inf:
        raise UserError(f"--text-gigabytes {text_gigabytes}: an amount of text is more than 0")
    if (text_gigabytes is None) != (data is None):
        raise UserError("--text-gigabytes and --data belong together: state both, or neither")
    scale: dict[str, Any] = {}
    if devices > 1:
        memory = sharded_memory(resolved, devices)
        scale["memory_per_device"] = {**asdict(memory), "total": memory.total}
    if data is not None and text_gigabytes is not None:
        text = text_scale(Dataset.open(data), text_gigabytes * 1e9)
        phases = range(len(resolved.phases))
        tokens = sum(resolved.num_tokens_of(phase) for phase in phases)
        scale["text"] = {**text, "epochs": tokens / text["tokens"]}
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
            "devices": devices,
            "utilisation": utilisation,
            "hours": hours,
            "dollars": hours * devices * price,
        },
        **scale,
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
    devices = f"one {training['gpu']}"
    if training["devices"] > 1:
        devices = f"{training['devices']} {training['gpu']}"
    readable: dict[str, Any] = {
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
            "time": f"{training['hours']:,.1f} hours on {devices} at "
            f"{readable_fraction(training['utilisation'])} of its peak",
            "price": f"{training['dollars']:,.2f} dollars",
        },
    }
    if "memory_per_device" in result:
        memory = result["memory_per_device"].items()
        readable["memory per device"] = {part: readable_bytes(size) for part, size in memory}
    if "text" in result:
        text = result["text"]
        readable["text"] = {
            "size": readable_bytes(text["bytes"]),
            "tokens": readable_count(round(text["tokens"])),
            "documents": readable_count(round(text["documents"])),
            "prepared": readable_bytes(text["prepared_bytes"]),
            "preparation": f"{text['preparation_hours']:,.1f} core hours",
            "epochs": f"{text['epochs']:.2g}",
        }
    return readable
