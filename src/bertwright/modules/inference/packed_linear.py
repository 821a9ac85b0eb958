"""Linear layers with packed weights, for CPUs with native bfloat16 products.

The weights are stored in the layout in which the kernel reads them. The result is
``activation(F.linear(x, weight, bias))`` in bfloat16.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.feed_forward import PlainFeedForward
from bertwright.modules.hooks import HookPoint

POINTWISE_NAMES = {"gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh"), "relu": ("relu", "")}
NUM_ROWS_HINT = 1024
"""Number of input rows that the layout is optimised for; any number works."""


def pack_linear_layers(module: nn.Module) -> nn.Module:
    """Replace every linear layer of a bfloat16 module with a packed one, in place."""
    return replace_linear_layers(
        module,
        PackedLinear,
        lambda plain: PackedFeedForward(plain) if plain.activation in POINTWISE_NAMES else None,
    )


def replace_linear_layers(
    module: nn.Module,
    linear: Callable[[nn.Linear], nn.Module],
    feed_forward: Callable[[PlainFeedForward], nn.Module | None],
) -> nn.Module:
    """Replace the linear layers of a module in place.

    ``linear`` returns the replacement of a layer. ``feed_forward`` returns the replacement of a
    whole plain feed-forward sublayer, or None to replace only its layers. Subclasses of
    ``nn.Linear`` stay.
    """
    for name, child in module.named_children():
        replacement = None
        if (
            isinstance(child, PlainFeedForward)
            and _is_plain_linear(child.up)
            and _is_plain_linear(child.down)
        ):
            replacement = feed_forward(child)
        if replacement is not None:
            setattr(module, name, replacement)
        elif isinstance(child, nn.Linear) and _is_plain_linear(child):
            setattr(module, name, linear(child))
        else:
            replace_linear_layers(child, linear, feed_forward)
    return module


def _is_plain_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear


class PackedLinear(nn.Module):
    """A packed linear layer, optionally with an activation."""

    def __init__(self, linear: nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        self.weight = linear.weight.detach()
        has_bias = "bias" in dict(linear.named_parameters(recurse=False))
        self.bias = linear.bias.detach() if has_bias else None
        self._packed_weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, NUM_ROWS_HINT)
        self._pointwise = POINTWISE_NAMES[activation] if activation else ("none", "")

    def forward(self, x: Tensor) -> Tensor:
        name, algorithm = self._pointwise
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed_weight, self.bias, name, [], algorithm
        )
        return result


class PackedFeedForward(nn.Module):
    """A plain feed-forward sublayer whose activation is fused into its first product."""

    def __init__(self, feed_forward: PlainFeedForward) -> None:
        super().__init__()
        self.up = PackedLinear(feed_forward.up, feed_forward.activation)
        self.norm = feed_forward.norm
        self.down = PackedLinear(feed_forward.down)

    def forward(
        self,
        x: Tensor,
        hooks: HookPoint | None = None,
        dropout_rng: DropoutRng | None = None,
        stream: int = 0,
    ) -> Tensor:
        assert hooks is None, "hooks need the unpacked model"
        return self.down(self.norm(self.up(x)))
