"""Weights on a quantization grid: integers of few bits times a shared scale.

A scale has 16 significant bits, so its product with an 8-bit integer is exact in float32. Rounding
a weight that is on the grid does not change it, and the stored integers restore it bit for bit.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.core.files import loads_json

QuantizationScheme = Literal["symmetric", "asymmetric"]
"""Whether 0 is in the middle of the range (symmetric) or anywhere in it (asymmetric)."""

BITS_RANGE = (2, 8)
"""Minimum and maximum number of bits of an integer."""

SCALE_DROPPED_BITS = (1 << 8) - 1
"""Number of low significand bits of a float32 that are 0 in a scale."""


@dataclass(frozen=True)
class QuantizationSteps:
    """A grid: the ``scale`` of a step and the range of integers, broadcastable float32 tensors."""

    scale: Tensor
    min_level: Tensor
    max_level: Tensor

    def quantize(self, values: Tensor) -> Tensor:
        """Return the integers of values as float32, rounded half to even."""
        return torch.round(values / self.scale).clamp(self.min_level, self.max_level)

    def round(self, values: Tensor) -> Tensor:
        """Return the nearest values on the grid."""
        return self.quantize(values) * self.scale


def quantization_steps(
    low: Tensor, high: Tensor, bits: int, scheme: QuantizationScheme
) -> QuantizationSteps:
    """Return a grid of ``bits`` that covers ``low``, ``high`` and 0; scale 1 if both are 0."""
    low, high = low.float().clamp(max=0.0), high.float().clamp(min=0.0)
    if scheme == "symmetric":
        top = max_level(bits, scheme)
        scale = _exact_scale(_divide(torch.maximum(-low, high), top))
        return QuantizationSteps(scale, torch.full_like(scale, -top), torch.full_like(scale, top))
    return _asymmetric_steps(low, high, max_level(bits, scheme), 0)


def max_level(bits: int, scheme: QuantizationScheme) -> int:
    """Return the largest symmetric integer, or the number of steps of an asymmetric grid."""
    return 2 ** (bits - 1) - 1 if scheme == "symmetric" else 2**bits - 1


def _asymmetric_steps(
    low: Tensor, high: Tensor, num_steps: int, num_unused: int
) -> QuantizationSteps:
    """Return a grid of ``num_steps``, the last ``num_unused`` of them above ``high``."""
    scale = _exact_scale(_divide(high - low, num_steps - num_unused))
    lowest = torch.round(low / scale)
    return QuantizationSteps(scale, lowest, lowest + num_steps)


def _divide(values: Tensor, divisor: int) -> Tensor:
    """Divide with one rounding; for a Python number, GPUs multiply by its reciprocal instead."""
    return values / torch.full_like(values, divisor)


def _exact_scale(scale: Tensor) -> Tensor:
    """Round a scale up to 16 significant bits; 0 becomes 1."""
    raised = (scale.contiguous().view(torch.int32) + SCALE_DROPPED_BITS) & ~SCALE_DROPPED_BITS
    return torch.where(scale > 0, raised.view(torch.float32), 1.0)


@dataclass(frozen=True)
class QuantizationGrid:
    """A quantization of a matrix in which groups of ``rows`` by ``columns`` weights share a scale.

    The last groups may be smaller.
    """

    bits: int
    rows: int
    columns: int
    scheme: QuantizationScheme = "symmetric"

    def to_groups(self, weight: Tensor) -> Tensor:
        """Return a weight (R, C) as zero-padded groups (A, rows, B, columns)."""
        padding = (-weight.shape[0] % self.rows, -weight.shape[1] % self.columns)
        padded = F.pad(weight, (0, padding[1], 0, padding[0])) if any(padding) else weight
        return padded.unflatten(1, (-1, self.columns)).unflatten(0, (-1, self.rows))

    @staticmethod
    def from_groups(groups: Tensor, shape: torch.Size) -> Tensor:
        """Return groups (A, rows, B, columns) as a weight of ``shape`` (R, C)."""
        return groups.flatten(2, 3).flatten(0, 1)[: shape[0], : shape[1]]

    def steps(self, groups: Tensor) -> QuantizationSteps:
        """Return the steps (A, 1, B, 1) that cover the values of each group."""
        low, high = groups.amin((1, 3), keepdim=True), groups.amax((1, 3), keepdim=True)
        return quantization_steps(low, high, self.bits, self.scheme)

    def round(self, weight: Tensor) -> Tensor:
        """Return the nearest weight on the grid, (R, C) float32."""
        groups = self.to_groups(weight.float())
        return self.from_groups(self.steps(groups).round(groups), weight.shape)

    def levels_if_on_grid(self, weight: Tensor) -> tuple[QuantizationSteps, Tensor] | None:
        """Return steps and integers (R, C) of a weight; None if it is not on this grid."""
        groups = self.to_groups(weight.float())
        steps = self.steps(groups)
        if self.scheme == "asymmetric":
            steps = self._steps_of_rounded(groups, steps)
        levels = steps.quantize(groups)
        if not torch.equal(levels * steps.scale, groups):
            return None
        return steps, self.from_groups(levels, weight.shape)

    def _steps_of_rounded(self, groups: Tensor, steps: QuantizationSteps) -> QuantizationSteps:
        """Return the steps of already rounded weights, which may not use the highest integer."""
        low = groups.amin((1, 3), keepdim=True).clamp(max=0.0)
        high = groups.amax((1, 3), keepdim=True).clamp(min=0.0)
        top = max_level(self.bits, self.scheme)
        fewer = _asymmetric_steps(low, high, top, 1)
        fits = (steps.round(groups) == groups).all((1, 3), keepdim=True)
        scale = torch.where(fits, steps.scale, fewer.scale)
        lowest = torch.where(fits, steps.min_level, fewer.min_level)
        return QuantizationSteps(scale, lowest, lowest + top)


PACKED_KEY = "packed"
"""Metadata key of packed tensors."""

PACKED_PARTS = ("codes", "scale", "zero")


def pack_state(
    module: nn.Module, grids: Mapping[str, QuantizationGrid] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a module for a safetensors file.

    Parameters are float32, and shared ones are stored once; those on their grids are packed.
    """
    grids, tensors, packed_metadata = (
        grids or {},
        dict[str, Tensor](),
        dict[str, dict[str, object]](),
    )
    for name, parameter in module.named_parameters():
        weight = parameter.detach().float().cpu()
        packed = pack_weight(weight, grids[name]) if name in grids else None
        if packed is None:
            tensors[name] = weight.contiguous()
            continue
        tensors |= {f"{name}.{part}": tensor for part, tensor in packed.items()}
        packed_metadata[name] = {**asdict(grids[name]), "shape": list(weight.shape)}
    tensors |= {name: buffer.cpu().contiguous() for name, buffer in module.named_buffers()}
    return tensors, {
        "format": "pt",
        **({PACKED_KEY: json.dumps(packed_metadata)} if packed_metadata else {}),
    }


def num_stored_bytes(module: nn.Module, grids: Mapping[str, QuantizationGrid] | None = None) -> int:
    """Return the bytes that the tensors take in a file, metadata excluded."""
    return sum(tensor.nbytes for tensor in pack_state(module, grids)[0].values())


def unpack_state(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the tensors of a file, with packed ones restored as weights."""
    result = dict(tensors)
    for name, grid in loads_json(metadata.get(PACKED_KEY, "{}")).items():
        shape = torch.Size(grid.pop("shape"))
        stored = [part for part in PACKED_PARTS if f"{name}.{part}" in result]
        parts = {part: result.pop(f"{name}.{part}") for part in stored}
        result[name] = unpack_weight(parts, QuantizationGrid(**grid), shape)
    return result


def pack_weight(weight: Tensor, grid: QuantizationGrid) -> dict[str, Tensor] | None:
    """Return a weight (R, C) as ``codes``, ``scale`` and, if asymmetric, ``zero``.

    Return None if the weight is not on the grid.
    """
    quantized = grid.levels_if_on_grid(weight)
    if quantized is None:
        return None
    steps, levels = quantized
    zero = -steps.min_level[:, 0, :, 0]
    codes = levels - _broadcast_groups(steps.min_level, grid, weight.shape)
    parts = {"codes": pack_bits(codes.to(torch.uint8), grid.bits)}
    parts["scale"] = steps.scale[:, 0, :, 0].contiguous()
    return parts if grid.scheme == "symmetric" else parts | {"zero": zero.to(torch.uint8)}


def unpack_weight(parts: Mapping[str, Tensor], grid: QuantizationGrid, shape: torch.Size) -> Tensor:
    """Return the packed weight (R, C) float32; KeyError for missing parts."""
    scale = parts["scale"]
    if grid.scheme == "symmetric":
        zero = torch.full_like(scale, max_level(grid.bits, grid.scheme))
    else:
        zero = parts["zero"].float()
    codes = unpack_bits(parts["codes"], grid.bits, shape.numel()).view(shape).float()
    levels = codes - _broadcast_groups(zero[:, None, :, None], grid, shape)
    return levels * _broadcast_groups(scale[:, None, :, None], grid, shape)


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    """Pack uint8 integers below 2^bits into (n,) uint8 without gaps, low bits first."""
    flat = codes.flatten().numpy()
    if bits == 8:
        return torch.from_numpy(flat.copy())
    lanes = np.unpackbits(flat[:, None], axis=1, count=bits, bitorder="little")
    return torch.from_numpy(np.packbits(lanes.ravel(), bitorder="little"))


def unpack_bits(packed: Tensor, bits: int, num_values: int) -> Tensor:
    """Return ``num_values`` integers (num_values,) uint8 from :func:`pack_bits`.

    Errors: ValueError for truncated data.
    """
    if len(packed) != -(-num_values * bits // 8):
        raise ValueError(f"{len(packed)} bytes are not {num_values} numbers of {bits} bits")
    if bits == 8:
        return packed
    lanes = np.unpackbits(packed.numpy(), count=num_values * bits, bitorder="little")
    codes = np.packbits(lanes.reshape(num_values, bits), axis=1, bitorder="little")
    return torch.from_numpy(codes[:, 0])


def _broadcast_groups(group_values: Tensor, grid: QuantizationGrid, shape: torch.Size) -> Tensor:
    """Return values of groups (A, 1, B, 1) for every weight, (R, C)."""
    spread = group_values.expand(-1, grid.rows, -1, grid.columns)
    return QuantizationGrid.from_groups(spread, shape)
