"""Normalisation, and where in a block it stands."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.roles import Role


class Norm(Choice):
    """The axis. ``placement`` post is the original Transformer, x = norm(x + f(x)); pre is
    x + f(norm(x)) with one more norm after the last block; sub is pre with another norm within each
    sublayer, before its output projection (Wang et al. 2022, Sub-LN). ``skip_first`` leaves out the
    very first norm of a pre-norm stack whose embeddings are normalised already (Warner et al.
    2024)."""

    epsilon: float = Field(default=1e-12, gt=0)
    placement: Literal["post", "pre", "sub"] = "post"
    skip_first: bool = False

    @property
    def first(self) -> bool:
        """Whether a sublayer reads what is normalised, and the states end with a norm."""
        return self.placement != "post"

    @property
    def skips_first(self) -> bool:
        """Whether there is a first norm of a pre-norm stack, and it is left out."""
        return self.first and self.skip_first

    def within(self, width: int) -> nn.Module:
        """The norm within a sublayer, an identity where it has none."""
        return self.build(width) if self.placement == "sub" else nn.Identity()

    def build(self, width: int) -> nn.Module:
        """A module that normalises the last axis, of the given width."""
        raise TypeError(f"{type(self).__name__} is an axis, not a norm")


class LayerNormChoice(Norm):
    """Subtract the mean, divide by the deviation, gain and bias, where it has them (Ba et al.
    2016)."""

    kind: Literal["layernorm"] = "layernorm"
    gain: bool = True
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return LayerNorm(width, self.epsilon, self.gain, self.bias)


class RMSNormChoice(Norm):
    """Divide by the root mean square; gain, no bias (Zhang and Sennrich 2019)."""

    kind: Literal["rmsnorm"] = "rmsnorm"

    def build(self, width: int) -> nn.Module:
        return RMSNorm(width, self.epsilon)


class NoNormChoice(Norm):
    """Gain and bias alone: nothing is normalised, so nothing waits for a mean (Sun et al. 2020,
    section 3.3)."""

    kind: Literal["no-norm"] = "no-norm"

    def build(self, width: int) -> nn.Module:
        return NoNorm(width)


class Unnormalised(Norm):
    """Nothing at all, as in recurrent language models."""

    kind: Literal["none"] = "none"
    placement: Literal["post", "pre", "sub"] = "pre"

    def build(self, width: int) -> nn.Module:
        return nn.Identity()


class LayerNorm(nn.Module):
    """Layer normalisation; statistics are taken in float32 whatever the dtype of the states."""

    parameter_roles: ClassVar[dict[str, Role]] = {"weight": Role("norm"), "bias": Role("norm")}

    def __init__(self, width: int, epsilon: float, gain: bool = True, bias: bool = True) -> None:
        super().__init__()
        self.epsilon, self.shape = epsilon, (width,)
        self.weight = nn.Parameter(torch.ones(width)) if gain else None
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.epsilon)


class NoNorm(nn.Module):
    """x times a gain, plus a bias."""

    parameter_roles: ClassVar[dict[str, Role]] = {"weight": Role("norm"), "bias": Role("norm")}

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class RMSNorm(nn.Module):
    """Root-mean-square normalisation."""

    parameter_roles: ClassVar[dict[str, Role]] = {"weight": Role("norm")}

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)
