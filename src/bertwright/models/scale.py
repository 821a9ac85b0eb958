"""The memory of each device of a sharded run, and the size of prepared text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import nn

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.encoder.encoder import Encoder, get_blocks
from bertwright.models.costs import activation_bytes
from bertwright.models.model import Model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes import Recipe

FLOAT32_BYTES, BF16_BYTES = 4, 2


@dataclass(frozen=True)
class DeviceMemory:
    """The bytes that each device of a sharded run holds.

    Attributes:
        parameters: this device's part, in float32 and in the computing precision.
        gradients: this device's part, in float32.
        optimiser: this device's part of the optimiser's state and buffers.
        gathered: the whole parameters outside of the blocks and those of two blocks (the current
            and the next one), with the gradients of one block and of what is outside.
        activations: those of one micro-batch.
    """

    parameters: float
    gradients: float
    optimiser: float
    gathered: float
    activations: float

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return sum(asdict(self).values())


def sharded_memory(recipe: Recipe, num_devices: int, vocab_size: int | None = None) -> DeviceMemory:
    """Return the memory of each of several devices that train a recipe together, sharded.

    The precision is the recipe's, by default bf16.
    """
    size = vocab_size or recipe.text.tokenizer.vocab_size
    with torch.device("meta"):
        model = Model(recipe, size)
    compute_bytes = FLOAT32_BYTES if recipe.precision == "float32" else BF16_BYTES
    num_parameters = _num_elements(dict(model.named_parameters()))
    precision = "float32" if recipe.precision == "float32" else "bf16"
    parameters = MasterParameters(model, get_parameter_roles(model), precision, "meta")
    with torch.device("meta"):
        optimiser = recipe.optimiser.build(parameters)
    blocks = [
        _num_elements(dict(block.named_parameters()))
        for encoder in model.modules()
        if isinstance(encoder, Encoder) and encoder.layer_stack.calls_every_block
        for block in _separate(encoder)
    ]
    outside, largest = num_parameters - sum(blocks), max(blocks, default=0)
    return DeviceMemory(
        num_parameters * (FLOAT32_BYTES + compute_bytes) / num_devices,
        num_parameters * FLOAT32_BYTES / num_devices,
        _tensor_bytes(vars(optimiser)) / num_devices,
        compute_bytes * (2 * outside + 3 * largest),
        float(activation_bytes(recipe, compute_bytes)),
    )


def _separate(encoder: Encoder) -> list[nn.Module]:
    """Return the blocks of an encoder; none if they share parameters."""
    blocks = get_blocks(encoder)
    distinct = {parameter for block in blocks for parameter in block.parameters()}
    num_parameters = sum(len(list(block.parameters())) for block in blocks)
    return list(blocks) if len(distinct) == num_parameters else []


def _num_elements(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def _tensor_bytes(value: object) -> int:
    """Return the bytes of all tensors in an optimiser, in its parts and in collections."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Optimiser):
        return _tensor_bytes(vars(value))
    if isinstance(value, Mapping):
        return sum(map(_tensor_bytes, cast(Mapping[str, object], value).values()))
    if isinstance(value, list | tuple):
        return sum(map(_tensor_bytes, cast(Sequence[object], value)))
    return 0


def text_scale(
    sample: Dataset, num_bytes: float, megabytes_per_second: float | None = None
) -> dict[str, Any]:
    """Return the size of more text of the same kind as a prepared sample.

    ``megabytes_per_second`` is by default the speed at which the sample was prepared. Errors:
    UserError for a data set without text.
    """
    report = sample.report
    if not report.get("bytes") or "megabytes_per_second" not in report:
        raise UserError(f"{sample.origin} was not prepared from text: name another sample")
    factor = num_bytes / report["bytes"]
    shard_bytes = sum(file.bytes for file in sample.manifest.files.values())
    speed = megabytes_per_second or report["megabytes_per_second"]
    return {
        "bytes": num_bytes,
        "tokens": report["tokens"] * factor,
        "documents": report["documents"] * factor,
        "prepared_bytes": shard_bytes * factor,
        "megabytes_per_second": speed,
        "preparation_hours": num_bytes / 1e6 / speed / 3600,
    }
