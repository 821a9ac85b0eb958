"""The position-wise feed-forward sublayer."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.modules.dropout_rng import DropoutRng, dropout
from bertwright.modules.hooks import HookPoint, tap
from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig

Activation = Literal["gelu", "gelu-tanh", "relu", "silu"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class FeedForwardConfig(Config):
    """A feed-forward of inner width ``width``, or ``expansion`` times the model's width.

    ``dropout`` is the dropout rate within it, after the activation.
    """

    width: int | None = Field(default=None, ge=1, le=1 << 20)
    expansion: float = Field(default=4.0, gt=0, le=1_024)
    bias: bool = True
    dropout: float = Field(default=0.0, ge=0, lt=1)

    activation: ClassVar[Activation] = "gelu"
    is_gated: ClassVar[bool] = False

    def inner_width(self, width: int) -> int:
        """Return the inner width in a model of this width."""
        return int(self.expansion * width) if self.width is None else self.width

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        for _, width in encoder.block_widths:
            if not self.inner_width(width):
                yield f"feed_forward has inner width 0 for width {width}: set feed_forward.width"

    def build(self, width: int, norm: NormConfig) -> nn.Module:
        """Build a module from (..., width) to (..., width)."""
        inner = self.inner_width(width)
        inner_norm = norm.build_inner_norm(inner)
        return PlainFeedForward(width, inner, self.activation, self.bias, inner_norm, self.dropout)


class GatedFeedForwardConfig(FeedForwardConfig):
    """A feed-forward sublayer with two projections, where one gates the other.

    The inner width is two thirds of a plain sublayer's, rounded down to a multiple of 16, for about
    the same number of parameters. ``gate`` is the half of the projection with the activation.
    """

    gate: Literal["first", "second"] = "first"

    is_gated: ClassVar[bool] = True

    def inner_width(self, width: int) -> int:
        plain_width = super().inner_width(width)
        return plain_width if self.width is not None else int(plain_width * 2 / 3) // 16 * 16

    def build(self, width: int, norm: NormConfig) -> nn.Module:
        return GatedFeedForward(self, width, norm.build_inner_norm(self.inner_width(width)))


class GELUConfig(FeedForwardConfig):
    """GELU, exact (Hendrycks and Gimpel 2016); BERT, RoBERTa."""

    kind: Literal["gelu"] = "gelu"


class GELUTanhConfig(FeedForwardConfig):
    """GELU in its tanh approximation, with an error of up to 4.7e-4; GPT, ALBERT."""

    kind: Literal["gelu-tanh"] = "gelu-tanh"
    activation: ClassVar[Activation] = "gelu-tanh"


class ReLUConfig(FeedForwardConfig):
    """Rectified linear units; the original Transformer, ERNIE."""

    kind: Literal["relu"] = "relu"
    activation: ClassVar[Activation] = "relu"


class GeGLUConfig(GatedFeedForwardConfig):
    """gelu(a) * b, where a and b are two projections (Shazeer 2020); ModernBERT."""

    kind: Literal["geglu"] = "geglu"


class GeGLUTanhConfig(GatedFeedForwardConfig):
    """GeGLU with the tanh approximation of GELU; GPT-BERT."""

    kind: Literal["geglu-tanh"] = "geglu-tanh"
    activation: ClassVar[Activation] = "gelu-tanh"


class SwiGLUConfig(GatedFeedForwardConfig):
    """silu(a) * b, where a and b are two projections (Shazeer 2020)."""

    kind: Literal["swiglu"] = "swiglu"
    activation: ClassVar[Activation] = "silu"


class PlainFeedForward(nn.Module):
    """down(dropout(norm(activation(up(x)))))."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "down.weight": ParameterRole("matrix", writes_residual=True)
    }

    def __init__(
        self,
        width: int,
        inner_width: int,
        activation: Activation,
        bias: bool,
        norm: nn.Module,
        dropout_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation, self.dropout_rate = activation, dropout_rate
        self.up = nn.Linear(width, inner_width, bias)
        self.norm = norm
        self.down = nn.Linear(inner_width, width, bias)

    def forward(
        self,
        x: Tensor,
        hooks: HookPoint | None = None,
        dropout_rng: DropoutRng | None = None,
        stream: int = 0,
    ) -> Tensor:
        preactivation = tap(hooks, "preactivation", self.up(x))
        activated = tap(hooks, "activation", ACTIVATIONS[self.activation](preactivation))
        inner = dropout(self.norm(activated), self.dropout_rate, dropout_rng, stream)
        return tap(hooks, "output", self.down(inner))


class GatedFeedForward(nn.Module):
    """down(dropout(norm(activation(a) * b))), where a and b are the halves of up(x)."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "up.weight": ParameterRole("matrix", num_parts=2),
        "down.weight": ParameterRole("matrix", writes_residual=True),
    }

    def __init__(self, config: GatedFeedForwardConfig, width: int, norm: nn.Module) -> None:
        super().__init__()
        inner = config.inner_width(width)
        self.activation, self.gate_is_second = config.activation, config.gate == "second"
        self.dropout_rate = config.dropout
        self.up = nn.Linear(width, 2 * inner, config.bias)
        self.norm = norm
        self.down = nn.Linear(inner, width, config.bias)

    def forward(
        self,
        x: Tensor,
        hooks: HookPoint | None = None,
        dropout_rng: DropoutRng | None = None,
        stream: int = 0,
    ) -> Tensor:
        preactivation = tap(hooks, "preactivation", self.up(x))
        gate, values = preactivation.chunk(2, dim=-1)
        if self.gate_is_second:
            gate, values = values, gate
        activated = tap(hooks, "activation", ACTIVATIONS[self.activation](gate) * values)
        inner = dropout(self.norm(activated), self.dropout_rate, dropout_rng, stream)
        return tap(hooks, "output", self.down(inner))
