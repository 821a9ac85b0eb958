"""Normalisation layers, and their placement in a block."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.modules.parameter_roles import NORM_ROLES, ParameterRole

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig


class NormConfig(Config):
    """The normalisation of an encoder.

    ``placement`` is ``post``, x = norm(x + f(x)) as in the original Transformer; ``pre``,
    x + f(norm(x)) with a final norm after the last block; or ``sub``, which is ``pre`` with another
    norm in each sublayer, before its output projection (Wang et al. 2022, Sub-LN). ``skip_first``
    omits the first norm of a pre-norm stack with normalised embeddings (Warner et al. 2024).
    """

    epsilon: float = Field(default=1e-12, gt=0)
    placement: Literal["post", "pre", "sub"] = "post"
    skip_first: bool = False

    @property
    def is_pre_norm(self) -> bool:
        """Return whether sublayers read normalised states; a final norm follows the last block."""
        return self.placement != "post"

    @property
    def skips_first_norm(self) -> bool:
        """Return whether this is a pre-norm stack without its first norm."""
        return self.is_pre_norm and self.skip_first

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        depth, orders = encoder.depth, encoder.depth.sublayer_orders()
        later_blocks = range(1, len(orders))
        is_shared = any(depth.owner_block(block, orders[0][0]) == 0 for block in later_blocks)
        if self.skips_first_norm and is_shared:
            yield (
                "norm.skip_first omits the first norm, which other blocks share: set it to false, "
                "or depth.sharing to none"
            )

    def with_blocks(self, blocks: Sequence[int]) -> "NormConfig":
        """Return the normalisation of an encoder with only these blocks, in order."""
        return self.model_copy(update={"skip_first": self.skip_first and blocks[0] == 0})

    def build_inner_norm(self, width: int) -> nn.Module:
        """Build the norm inside a sublayer, an identity unless ``placement`` is ``sub``."""
        return self.build(width) if self.placement == "sub" else nn.Identity()

    def build(self, width: int) -> nn.Module:
        """Build a module that normalises the last axis, of this width."""
        raise TypeError(f"{type(self).__name__} is an axis, not a norm")


class LayerNormConfig(NormConfig):
    """Layer normalisation, with optional gain and bias (Ba et al. 2016)."""

    kind: Literal["layernorm"] = "layernorm"
    gain: bool = True
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return LayerNorm(width, self.epsilon, self.gain, self.bias)


class RMSNormConfig(NormConfig):
    """Root-mean-square normalisation with a gain, no bias (Zhang and Sennrich 2019)."""

    kind: Literal["rmsnorm"] = "rmsnorm"

    def build(self, width: int) -> nn.Module:
        return nn.RMSNorm(width, self.epsilon)


class NoNormConfig(NormConfig):
    """A gain and a bias without normalisation (Sun et al. 2020, section 3.3)."""

    kind: Literal["no-norm"] = "no-norm"

    def build(self, width: int) -> nn.Module:
        return NoNorm(width)


class IdentityNormConfig(NormConfig):
    """No norm, as in recurrent language models."""

    kind: Literal["none"] = "none"
    placement: Literal["post", "pre", "sub"] = "pre"

    def build(self, width: int) -> nn.Module:
        return nn.Identity()


class LayerNorm(nn.Module):
    """Layer normalisation with statistics in float32 for any dtype of the input."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = NORM_ROLES

    def __init__(self, width: int, epsilon: float, gain: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.epsilon, self.shape = epsilon, (width,)
        self.weight = nn.Parameter(torch.ones(width)) if gain else None
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.epsilon)


class NoNorm(nn.Module):
    """A layer that returns x times a gain plus a bias."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = NORM_ROLES

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias
