"""The feed-forward sublayer: each place by itself, through a wider space."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.roles import Role
from bertwright.encoder.taps import Site, tap

Activation = Literal["gelu", "gelu-tanh", "relu", "silu"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class FeedForward(Choice):
    """The axis. The inner width is ``width``, or else ``expansion`` times that of the model; a
    gated kind takes two thirds of it, rounded down to a multiple of 16, so that the number of
    parameters stays that of a plain one."""

    width: int | None = None
    expansion: float = 4.0
    bias: bool = True

    activation: ClassVar[Activation] = "gelu"
    gated: ClassVar[bool] = False

    def inner(self, width: int) -> int:
        """The inner width in a model of the given width."""
        if self.width is not None:
            return self.width
        wide = self.expansion * width
        return int(wide * 2 / 3) // 16 * 16 if self.gated else int(wide)

    def build(self, width: int) -> nn.Module:
        """A module from (..., width) to (..., width)."""
        module = GatedFeedForward if self.gated else PlainFeedForward
        return module(width, self.inner(width), self.activation, self.bias)


class Gelu(FeedForward):
    """GELU by the error function (Hendrycks and Gimpel 2016); BERT, RoBERTa."""

    kind: Literal["gelu"] = "gelu"


class GeluTanh(FeedForward):
    """GELU by its tanh approximation, off by up to 4.7e-4; GPT, ALBERT."""

    kind: Literal["gelu-tanh"] = "gelu-tanh"
    activation: ClassVar[Activation] = "gelu-tanh"


class Relu(FeedForward):
    """Rectified linear units; the original Transformer, ERNIE."""

    kind: Literal["relu"] = "relu"
    activation: ClassVar[Activation] = "relu"


class GeGLU(FeedForward):
    """gelu(a) * b, where a and b are two projections (Shazeer 2020); ModernBERT."""

    kind: Literal["geglu"] = "geglu"
    gated: ClassVar[bool] = True


class SwiGLU(FeedForward):
    """silu(a) * b, where a and b are two projections (Shazeer 2020)."""

    kind: Literal["swiglu"] = "swiglu"
    activation: ClassVar[Activation] = "silu"
    gated: ClassVar[bool] = True


class PlainFeedForward(nn.Module):
    """down(activation(up(x)))."""

    parameter_roles: ClassVar[dict[str, Role]] = {"down.weight": Role("matrix", residual=True)}

    def __init__(self, width: int, inner: int, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, inner, bias)
        self.down = nn.Linear(inner, width, bias)

    def forward(self, x: Tensor, site: Site | None = None) -> Tensor:
        before = tap(site, "preactivation", self.up(x))
        active = tap(site, "activation", ACTIVATIONS[self.activation](before))
        return tap(site, "output", self.down(active))


class GatedFeedForward(nn.Module):
    """down(activation(a) * b) with [a; b] = up(x): the first half is activated."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "up.weight": Role("matrix", parts=2),
        "down.weight": Role("matrix", residual=True),
    }

    def __init__(self, width: int, inner: int, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, 2 * inner, bias)
        self.down = nn.Linear(inner, width, bias)

    def forward(self, x: Tensor, site: Site | None = None) -> Tensor:
        before = tap(site, "preactivation", self.up(x))
        a, b = before.chunk(2, dim=-1)
        active = tap(site, "activation", ACTIVATIONS[self.activation](a) * b)
        return tap(site, "output", self.down(active))
