"""Parameter roles, used by weight decay, Muon, layer-wise learning rates and reports."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

ParameterKind = Literal["matrix", "bias", "norm", "table", "gate", "vector", "mixture"]


@dataclass(frozen=True)
class ParameterRole:
    """The role of one parameter.

    - ``kind``: a gate is initialised to 1, a mixture to its last element
    - ``num_parts``: number of matrices stacked in the parameter (3 in a fused query-key-value
      projection)
    - ``writes_residual``: True for matrices that write to the residual stream
    - ``depth``: index of the block; -1 before the blocks, None after them
    - ``sublayer``: name of the sublayer, if any
    - ``first_part_scale``: factor of the first part at initialisation
    - ``fan_in``: the fan-in, if it is not the last dimension
    """

    kind: ParameterKind
    num_parts: int = 1
    writes_residual: bool = False
    depth: int | None = None
    sublayer: str | None = None
    first_part_scale: float = 1.0
    fan_in: int | None = None


BEFORE_BLOCKS = -1
"""Depth of parameters before the blocks."""

NORM_ROLES = {"weight": ParameterRole("norm"), "bias": ParameterRole("norm")}

ROLES_BY_CLASS: dict[type[nn.Module], dict[str, ParameterRole]] = {
    nn.Linear: {"weight": ParameterRole("matrix"), "bias": ParameterRole("bias")},
    nn.Embedding: {"weight": ParameterRole("table")},
    nn.RMSNorm: NORM_ROLES,
}


def get_parameter_roles(module: nn.Module) -> dict[str, ParameterRole]:
    """Return the role of every parameter of a module, by its name in ``named_parameters()``.

    Module classes declare roles in ``parameter_roles``, where a dotted name is a parameter of a
    child; the declaration of the outer module wins. A module with ``is_before_blocks`` comes before
    the blocks. Every parameter must have a role.
    """
    roles: dict[str, ParameterRole] = {}
    prefixes_before_blocks: list[str] = []
    for prefix, child in module.named_modules():
        if getattr(child, "is_before_blocks", False):
            prefixes_before_blocks.append(f"{prefix}." if prefix else "")
        for name, role in _declared_roles(child).items():
            roles.setdefault(f"{prefix}.{name}" if prefix else name, role)
    return {
        name: _with_depth(name, roles[name], tuple(prefixes_before_blocks))
        for name, _ in module.named_parameters()
    }


def num_parameter_levels(roles: Mapping[str, ParameterRole]) -> int:
    """Return the number of levels, also if no parameter is after the blocks."""
    return 3 + max((role.depth for role in roles.values() if role.depth is not None), default=-2)


def parameter_levels(roles: Mapping[str, ParameterRole]) -> dict[str, int]:
    """Return the level of every parameter, from 0 before the blocks to the highest after them."""
    highest = num_parameter_levels(roles) - 1
    return {name: highest if role.depth is None else role.depth + 1 for name, role in roles.items()}


def _declared_roles(module: nn.Module) -> dict[str, ParameterRole]:
    known = (roles for kind, roles in ROLES_BY_CLASS.items() if isinstance(module, kind))
    return next(known, getattr(module, "parameter_roles", {}))


def _with_depth(
    name: str, role: ParameterRole, prefixes_before_blocks: tuple[str, ...]
) -> ParameterRole:
    """Return the role with the block and the sublayer that the parameter's name states."""
    parts = name.split(".")
    if "blocks" not in parts:
        return replace(
            role, depth=BEFORE_BLOCKS if name.startswith(prefixes_before_blocks) else None
        )
    _, depth, *inner = parts[parts.index("blocks") :]
    sublayer = inner[1] if inner[0] == "sublayers" else None
    return replace(role, depth=int(depth), sublayer=sublayer)
