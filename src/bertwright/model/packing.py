"""Weights on a grid in a file: whole numbers side by side, bit by bit, and the scales.

A packed weight ``NAME`` stands as ``NAME.codes``, uint8; ``NAME.scale``, float32, and for an
asymmetric grid ``NAME.zero``, uint8, which code stands for 0, one for each group. Which grid it is
stands in the file's own description, so that whoever reads the file needs nothing else.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.files import json_value
from bertwright.model.grids import Grid, highest_level

PACKED = "packed"
"""What the description calls them."""

PARTS = ("codes", "scale", "zero")


def stored(
    module: nn.Module, grids: Mapping[str, Grid] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a module as a file holds them, and what it says of them.

    Parameters are float32, a shared storage stands once; those that stand on their grids are
    packed, any other is whole.
    """
    grids, tensors, about = grids or {}, dict[str, Tensor](), dict[str, dict[str, object]]()
    for name, parameter in module.named_parameters():
        weight = parameter.detach().float().cpu()
        packed = packed_weight(weight, grids[name]) if name in grids else None
        if packed is None:
            tensors[name] = weight.contiguous()
            continue
        tensors |= {f"{name}.{part}": tensor for part, tensor in packed.items()}
        about[name] = {**asdict(grids[name]), "shape": list(weight.shape)}
    tensors |= {name: buffer.cpu().contiguous() for name, buffer in module.named_buffers()}
    return tensors, {"format": "pt", **({PACKED: json.dumps(about)} if about else {})}


def num_bytes(module: nn.Module, grids: Mapping[str, Grid] | None = None) -> int:
    """What the tensors of a module take in a file: its size, less what describes them."""
    return sum(tensor.nbytes for tensor in stored(module, grids)[0].values())


def unpacked(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of a file with weights in the place of what was packed."""
    found = dict(tensors)
    for name, said in json_value(about.get(PACKED, "{}")).items():
        shape = torch.Size(said.pop("shape"))
        own = [part for part in PARTS if f"{name}.{part}" in found]
        parts = {part: found.pop(f"{name}.{part}") for part in own}
        found[name] = unpacked_weight(parts, Grid(**said), shape)
    return found


def packed_weight(weight: Tensor, grid: Grid) -> dict[str, Tensor] | None:
    """A weight (R, C) as ``codes``, ``scale`` and perhaps ``zero``; None where it does not stand on
    the grid."""
    found = grid.standing(weight)
    if found is None:
        return None
    steps, levels = found
    zero = -steps.lowest[:, 0, :, 0]
    codes = levels - _over(steps.lowest, grid, weight.shape)
    parts = {"codes": as_bytes(codes.to(torch.uint8), grid.bits)}
    parts["scale"] = steps.scale[:, 0, :, 0].contiguous()
    return parts if grid.scheme == "symmetric" else parts | {"zero": zero.to(torch.uint8)}


def unpacked_weight(parts: Mapping[str, Tensor], grid: Grid, shape: torch.Size) -> Tensor:
    """The weight (R, C) float32 that was packed; KeyError for parts that are missing."""
    scale = parts["scale"]
    if grid.scheme == "symmetric":
        zero = torch.full_like(scale, highest_level(grid.bits, grid.scheme))
    else:
        zero = parts["zero"].float()
    codes = from_bytes(parts["codes"], grid.bits, shape.numel()).view(shape).float()
    levels = codes - _over(zero[:, None, :, None], grid, shape)
    return levels * _over(scale[:, None, :, None], grid, shape)


def as_bytes(codes: Tensor, bits: int) -> Tensor:
    """Whole numbers below 2^bits, uint8 of any shape, as (n,) uint8 without gaps between them, the
    last bits of each first."""
    flat = codes.flatten().numpy()
    if bits == 8:
        return torch.from_numpy(flat.copy())
    lanes = np.unpackbits(flat[:, None], axis=1, count=bits, bitorder="little")
    return torch.from_numpy(np.packbits(lanes.ravel(), bitorder="little"))


def from_bytes(packed: Tensor, bits: int, number: int) -> Tensor:
    """So many whole numbers of what :func:`as_bytes` gave, (number,) uint8; ValueError where it is
    cut short."""
    if len(packed) != -(-number * bits // 8):
        raise ValueError(f"{len(packed)} bytes are not {number} numbers of {bits} bits")
    if bits == 8:
        return packed
    lanes = np.unpackbits(packed.numpy(), count=number * bits, bitorder="little")
    codes = np.packbits(lanes.reshape(number, bits), axis=1, bitorder="little")
    return torch.from_numpy(codes[:, 0])


def _over(of_groups: Tensor, grid: Grid, shape: torch.Size) -> Tensor:
    """What groups (A, 1, B, 1) have, at every weight (R, C)."""
    spread = of_groups.expand(-1, grid.rows, -1, grid.columns)
    return Grid.joined(spread, shape)
