"""What a parameter is for: what weight decay, Muon, layer-wise rates and reports ask."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

Kind = Literal["matrix", "bias", "norm", "table", "gate", "vector", "mixture"]


@dataclass(frozen=True)
class Role:
    """The role of one parameter.

    ``parts`` says how many canonical matrices are stored in it, one above the other (a fused
    query-key-value projection has three); ``residual`` marks the matrices that write to the
    residual stream; ``depth`` is the index of the block, -1 before the blocks, None behind them;
    ``sublayer`` the name of the sublayer, None outside of them. A gate starts as 1, a mixture as
    the last of what it mixes. ``first_part`` is how large the first of the parts begins beside the
    others; ``fan_in`` the width of the states it acts on, where its own shape does not tell.
    """

    kind: Kind
    parts: int = 1
    residual: bool = False
    depth: int | None = None
    sublayer: str | None = None
    first_part: float = 1.0
    fan_in: int | None = None


FIRST = -1
"""The depth of what stands before the blocks."""

LINEAR = {"weight": Role("matrix"), "bias": Role("bias")}
TABLE = {"weight": Role("table")}


def roles(module: nn.Module) -> dict[str, Role]:
    """The role of every parameter of a module, by the names of ``named_parameters()``.

    A module class states the roles of its parameters in ``parameter_roles``, where dotted names
    reach into children; what an outer module states wins. One that stands before the blocks says so
    by ``feeds_blocks``. A parameter without a role is an error of ours.
    """
    found: dict[str, Role] = {}
    feeding: list[str] = []
    for prefix, child in module.named_modules():
        if getattr(child, "feeds_blocks", False):
            feeding.append(f"{prefix}." if prefix else "")
        for name, role in _stated(child).items():
            found.setdefault(f"{prefix}.{name}" if prefix else name, role)
    return {
        name: _placed(name, found[name], tuple(feeding)) for name, _ in module.named_parameters()
    }


def _stated(module: nn.Module) -> dict[str, Role]:
    if isinstance(module, nn.Linear):
        return LINEAR
    if isinstance(module, nn.Embedding):
        return TABLE
    return getattr(module, "parameter_roles", {})


def _placed(name: str, role: Role, feeding: tuple[str, ...]) -> Role:
    """The role of a parameter with its block and sublayer, which its name tells."""
    parts = name.split(".")
    if "blocks" not in parts:
        return replace(role, depth=FIRST if name.startswith(feeding) else None)
    _, depth, *inner = parts[parts.index("blocks") :]
    sublayer = inner[1] if inner[0] == "sublayers" else None
    return replace(role, depth=int(depth), sublayer=sublayer)
