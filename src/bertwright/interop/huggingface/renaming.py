"""Names of tensors here and there: one ordered table for both directions.

A row pairs a name of ours with the name that a stock class uses. ``#`` stands for the number of a
block, and what follows the written part (``.weight``, ``.bias``) stays as it is. Where a row has
several names there, their tensors lie one above the other in ours, in that order. The first row
that fits decides.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from bertwright.errors import UserError

Row = tuple[str, tuple[str, ...]]
Table = tuple[Row, ...]
Tensors = dict[str, Tensor]


def to_ours(table: Table, tensors: Mapping[str, Tensor]) -> Tensors:
    """Tensors by their stock names to tensors by our names.

    Errors: UserError for a name that no row knows, or where a part of a stacked tensor is missing.
    """
    parts: dict[str, dict[str, Tensor]] = {}
    wanted: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        ours, theirs = _row_of(table, name)
        parts.setdefault(ours, {})[name] = tensor
        wanted[ours] = theirs
    for ours, names in wanted.items():
        if missing := [name for name in names if name not in parts[ours]]:
            raise UserError(f"the tensor {missing[0]} is missing beside {next(iter(parts[ours]))}")
    return {ours: _stacked([parts[ours][n] for n in names]) for ours, names in wanted.items()}


def to_theirs(table: Table, tensors: Mapping[str, Tensor]) -> Tensors:
    """Tensors by our names to tensors by their stock names.

    Errors: UserError for a name that no row knows.
    """
    result: Tensors = {}
    for name, tensor in tensors.items():
        theirs = stock_names(table, name)
        if not theirs:
            raise UserError(f"the tensor {name} has no counterpart in the stock class")
        for stock_name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            result[stock_name] = part.contiguous()
    return result


def stock_names(table: Table, name: str) -> list[str]:
    """The stock names of one of our tensors; empty where no row knows it."""
    for ours, theirs in table:
        if (fit := _fit(ours, name)) is not None:
            return [_filled(pattern, *fit) for pattern in theirs]
    return []


def knows(table: Table, name: str) -> bool:
    """Return whether a table has a stock tensor of this name."""
    return any(_fit(pattern, name) is not None for _, theirs in table for pattern in theirs)


def prefixed(prefix: str, table: Table) -> Table:
    """The table with all stock names inside a part of that name."""
    return tuple((ours, tuple(f"{prefix}.{name}" for name in theirs)) for ours, theirs in table)


def _row_of(table: Table, name: str) -> tuple[str, list[str]]:
    """Our name for a stock tensor, and all the stock tensors that are stacked in it."""
    for ours, theirs in table:
        for pattern in theirs:
            if (fit := _fit(pattern, name)) is not None:
                return _filled(ours, *fit), [_filled(p, *fit) for p in theirs]
    raise UserError(f"the tensor {name} has no counterpart here: this kind of head is not read")


def _fit(pattern: str, name: str) -> tuple[str, str] | None:
    """The number in the place of ``#`` and what follows the pattern, where a name begins so."""
    wanted, given = pattern.split("."), name.split(".")
    number = ""
    for want, part in zip(wanted, given, strict=False):
        if want == "#" and part.isdigit():
            number = part
        elif want != part:
            return None
    rest = given[len(wanted) :]
    return None if len(given) < len(wanted) else (number, "".join(f".{part}" for part in rest))


def _filled(pattern: str, number: str, rest: str) -> str:
    return pattern.replace("#", number) + rest


def _stacked(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
