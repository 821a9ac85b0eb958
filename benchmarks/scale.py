"""The arithmetic of much text and a large encoder, for docs/how-to/beyond-one-machine.md."""

from typing import Any

from bertwright.data.shards.dataset import Dataset
from bertwright.models import costs
from bertwright.models.scale import sharded_memory, text_scale
from bertwright.recipes import Recipe

NUM_DEVICES = (1, 2, 4, 8, 16, 64)

TEXT_COLUMNS = {
    "gigabytes": "GB of text",
    "tokens": "tokens",
    "documents": "documents",
    "prepared_gigabytes": "GB of shards",
    "megabytes_per_second": "MB/s of one core",
    "core_hours": "core hours of preparation",
}
DEVICE_COLUMNS = {
    "devices": "devices",
    "parameters": "GB of parameters on each",
    "gradients": "gradients",
    "optimiser": "optimiser",
    "gathered": "gathered",
    "activations": "activations",
    "total": "in total",
    "flops": "FLOPs of one epoch",
    "days": "days",
}


def text(
    sample: Dataset, num_bytes: float, megabytes_per_second: float | None = None
) -> dict[str, Any]:
    """Return the size of text of the kind of a sample, at the speed of one process."""
    scale = text_scale(sample, num_bytes, megabytes_per_second)
    return {
        **scale,
        "gigabytes": num_bytes / 1e9,
        "prepared_gigabytes": scale["prepared_bytes"] / 1e9,
        "core_hours": scale["preparation_hours"],
    }


def devices(
    recipe: Recipe, num_tokens: float, gpu: str, utilisation: float
) -> list[dict[str, Any]]:
    """Return the memory of each device and the days of one epoch, for numbers of devices."""
    flops = num_tokens * costs.flops_per_token(recipe).training
    hours = costs.training_hours(flops, gpu, utilisation)
    records: list[dict[str, Any]] = []
    for number in NUM_DEVICES:
        memory = sharded_memory(recipe, number)
        gigabytes = {name: value / 1e9 for name, value in vars(memory).items()}
        records.append(
            {
                "devices": number,
                **gigabytes,
                "total": memory.total / 1e9,
                "flops": f"{flops:.3g}",
                "days": hours / 24 / number,
            }
        )
    return records
