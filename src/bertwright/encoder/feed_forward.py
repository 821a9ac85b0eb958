"""The feed-forward sublayer: each place by itself, through a wider space."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.norms import Norm
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
    """The axis. The inner width is ``width``, or else ``expansion`` times that of the model."""

    width: int | None = Field(default=None, ge=1, le=1 << 20)
    expansion: float = Field(default=4.0, gt=0, le=1_024)
    bias: bool = True

    activation: ClassVar[Activation] = "gelu"
    gated: ClassVar[bool] = False

    def inner(self, width: int) -> int:
        """The inner width in a model of the given width."""
        return int(self.expansion * width) if self.width is None else self.width

    def build(self, width: int, norm: Norm) -> nn.Module:
        """A module from (..., width) to (..., width)."""
        inner = self.inner(width)
        return PlainFeedForward(width, inner, self.activation, self.bias, norm.within(inner))


class Gated(FeedForward):
    """What gated kinds have in common: two projections, one of which gates the other.

    Of the inner width two thirds are taken, rounded down to a multiple of 16, so that the number of
    parameters stays that of a plain one. ``gate`` says which half of the projection is activated.
    """

    gate: Literal["first", "second"] = "first"

    gated: ClassVar[bool] = True

    def inner(self, width: int) -> int:
        wide = super().inner(width)
        return wide if self.width is not None else int(wide * 2 / 3) // 16 * 16

    def build(self, width: int, norm: Norm) -> nn.Module:
        return GatedFeedForward(self, width, norm.within(self.inner(width)))


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


class GeGLU(Gated):
    """gelu(a) * b, where a and b are two projections (Shazeer 2020); ModernBERT."""

    kind: Literal["geglu"] = "geglu"


class GeGLUTanh(Gated):
    """The same with the tanh approximation of GELU; GPT-BERT."""

    kind: Literal["geglu-tanh"] = "geglu-tanh"
    activation: ClassVar[Activation] = "gelu-tanh"


class SwiGLU(Gated):
    """silu(a) * b, where a and b are two projections (Shazeer 2020)."""

    kind: Literal["swiglu"] = "swiglu"
    activation: ClassVar[Activation] = "silu"


class PlainFeedForward(nn.Module):
    """down(norm(activation(up(x))))."""

    parameter_roles: ClassVar[dict[str, Role]] = {"down.weight": Role("matrix", residual=True)}

    def __init__(
        self, width: int, inner: int, activation: Activation, bias: bool, norm: nn.Module
    ) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, inner, bias)
        self.norm = norm
        self.down = nn.Linear(inner, width, bias)

    def forward(self, x: Tensor, site: Site | None = None) -> Tensor:
        before = tap(site, "preactivation", self.up(x))
        active = tap(site, "activation", ACTIVATIONS[self.activation](before))
        return tap(site, "output", self.down(self.norm(active)))


class GatedFeedForward(nn.Module):
    """down(norm(activation(a) * b)), where a and b are the halves of up(x)."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "up.weight": Role("matrix", parts=2),
        "down.weight": Role("matrix", residual=True),
    }

    def __init__(self, choice: Gated, width: int, norm: nn.Module) -> None:
        super().__init__()
        inner = choice.inner(width)
        self.activation, self.gate_last = choice.activation, choice.gate == "second"
        self.up = nn.Linear(width, 2 * inner, choice.bias)
        self.norm = norm
        self.down = nn.Linear(inner, width, choice.bias)

    def forward(self, x: Tensor, site: Site | None = None) -> Tensor:
        before = tap(site, "preactivation", self.up(x))
        gate, open_half = before.chunk(2, dim=-1)
        if self.gate_last:
            gate, open_half = open_half, gate
        active = tap(site, "activation", ACTIVATIONS[self.activation](gate) * open_half)
        return tap(site, "output", self.down(self.norm(active)))
