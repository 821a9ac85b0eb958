"""Tensor names of bertwright and of stock classes, as one ordered table for both directions.

Each row pairs one of our names with stock names. ``#`` is a block index; suffixes (``.weight``,
``.bias``) carry over. If a row has several stock names, our tensor is their concatenation along
dimension 0, in that order. The first matching row applies.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from bertwright.core.errors import UserError

TensorNameRow = tuple[str, tuple[str, ...]]
TensorNameTable = tuple[TensorNameRow, ...]
StateDict = dict[str, Tensor]


def from_stock_names(table: TensorNameTable, tensors: Mapping[str, Tensor]) -> StateDict:
    """Rename stock tensors to our names.

    Raises UserError for a name without a row and for a missing part of a concatenated tensor.
    """
    parts: dict[str, dict[str, Tensor]] = {}
    stock_names: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        ours, names = _find_row(table, name)
        parts.setdefault(ours, {})[name] = tensor
        stock_names[ours] = names
    for ours, names in stock_names.items():
        if missing := [name for name in names if name not in parts[ours]]:
            raise UserError(f"the tensor {missing[0]} is missing, which belongs to {ours}")
    return {o: _concatenate([parts[o][name] for name in n]) for o, n in stock_names.items()}


def to_stock_names(table: TensorNameTable, tensors: Mapping[str, Tensor]) -> StateDict:
    """Rename our tensors to stock names; UserError for a name without a row."""
    result: StateDict = {}
    for name, tensor in tensors.items():
        theirs = find_stock_names(table, name)
        if not theirs:
            raise UserError(f"the tensor {name} has no counterpart in the stock class")
        for stock_name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            result[stock_name] = part.contiguous()
    return result


def find_stock_names(table: TensorNameTable, name: str) -> list[str]:
    """Return the stock names of one of our tensors; empty if no row matches."""
    for ours, theirs in table:
        if (match := _match_pattern(ours, name)) is not None:
            return [_fill_pattern(pattern, *match) for pattern in theirs]
    return []


def has_stock_name(table: TensorNameTable, name: str) -> bool:
    """Return whether a table has a row for this stock name."""
    return any(
        _match_pattern(pattern, name) is not None for _, theirs in table for pattern in theirs
    )


def add_prefix(prefix: str, table: TensorNameTable) -> TensorNameTable:
    """Return the table with a prefix added to all stock names."""
    return tuple((ours, tuple(f"{prefix}.{name}" for name in theirs)) for ours, theirs in table)


def fill_prefix(prefix: str, table: TensorNameTable) -> TensorNameTable:
    """Return the table with ``{prefix}`` in stock names filled in."""
    return tuple((ours, tuple(n.format(prefix=prefix) for n in theirs)) for ours, theirs in table)


def _find_row(table: TensorNameTable, name: str) -> tuple[str, list[str]]:
    """Return our name for a stock tensor, and all stock tensors concatenated in it."""
    for ours, theirs in table:
        for pattern in theirs:
            if (match := _match_pattern(pattern, name)) is not None:
                return _fill_pattern(ours, *match), [_fill_pattern(p, *match) for p in theirs]
    raise UserError(f"the tensor {name} has no counterpart here: unsupported kind of head")


def _match_pattern(pattern: str, name: str) -> tuple[str, str] | None:
    """Return the block index and the suffix of a name that starts with the pattern, else None."""
    pattern_parts, name_parts = pattern.split("."), name.split(".")
    index = ""
    for expected, part in zip(pattern_parts, name_parts, strict=False):
        if expected == "#" and part.isdigit():
            index = part
        elif expected != part:
            return None
    if len(name_parts) < len(pattern_parts):
        return None
    return index, "".join(f".{part}" for part in name_parts[len(pattern_parts) :])


def _fill_pattern(pattern: str, number: str, rest: str) -> str:
    return pattern.replace("#", number) + rest


def _concatenate(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
