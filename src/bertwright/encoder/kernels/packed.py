"""Linear layers for inference on a CPU that multiplies bfloat16 natively: weights laid out once the
way it reads them.

The plain definition is ``activation(F.linear(x, weight, bias))`` in bfloat16.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bertwright.encoder.feed_forward import PlainFeedForward
from bertwright.encoder.taps import Site

FUSED = {"gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh"), "relu": ("relu", "")}
ROWS_HINT = 1024
"""The number of rows that the layout is chosen for; any number works."""


def pack(module: nn.Module) -> nn.Module:
    """Replace every linear layer of a bfloat16 module by a packed one, in place."""
    return replace_linear(
        module,
        PackedLinear,
        lambda plain: PackedFeedForward(plain) if plain.activation in FUSED else None,
    )


def replace_linear(
    module: nn.Module,
    linear: Callable[[nn.Linear], nn.Module],
    feed_forward: Callable[[PlainFeedForward], nn.Module | None],
) -> nn.Module:
    """Replace, in place, the linear layers of a module, those of plain feed-forwards together where
    that gives something; a layer that computes more than a linear one stays."""
    for name, child in module.named_children():
        whole = None
        if isinstance(child, PlainFeedForward) and _is_linear(child.up) and _is_linear(child.down):
            whole = feed_forward(child)
        if whole is not None:
            setattr(module, name, whole)
        elif isinstance(child, nn.Linear) and _is_linear(child):
            setattr(module, name, linear(child))
        else:
            replace_linear(child, linear, feed_forward)
    return module


def _is_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear


class PackedLinear(nn.Module):
    """A linear layer, with its activation where it has one."""

    def __init__(self, linear: nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        self.weight = linear.weight.detach()
        biased = "bias" in dict(linear.named_parameters(recurse=False))
        self.bias = linear.bias.detach() if biased else None
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS_HINT)
        self._fused = FUSED[activation] if activation else ("none", "")

    def forward(self, x: Tensor) -> Tensor:
        name, algorithm = self._fused
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self.bias, name, [], algorithm
        )
        return result


class PackedFeedForward(nn.Module):
    """A plain feed-forward whose activation is part of its first product."""

    def __init__(self, plain: PlainFeedForward) -> None:
        super().__init__()
        self.up = PackedLinear(plain.up, plain.activation)
        self.norm = plain.norm
        self.down = PackedLinear(plain.down)

    def forward(self, x: Tensor, site: Site | None = None) -> Tensor:
        assert site is None, "inner values are looked at in the unpacked model"
        return self.down(self.norm(self.up(x)))
