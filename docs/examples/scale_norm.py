"""ScaleNorm: scale every hidden state to one learned length (Nguyen and Salazar 2019, section 2.2).

bertwright pretrain modern-tiny encoder.norm.kind=scale-norm --plugin scale_norm.py --data data
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole


class ScaleNormConfig(NormConfig):
    """Division by the Euclidean length, and one learned length."""

    kind: Literal["scale-norm"] = "scale-norm"

    def build(self, width: int) -> nn.Module:
        return ScaleNorm(width, self.epsilon)


class ScaleNorm(nn.Module):
    """x times a learned length, initially the square root of the width, over the length of x."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"length": ParameterRole("norm")}

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.length = nn.Parameter(torch.full((1,), width**0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.length / x.norm(dim=-1, keepdim=True).clamp_min(self.epsilon))
