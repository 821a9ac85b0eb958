"""A layer that maps the vectors of texts, after pooling."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Settings

VECTOR_PROJECTION = "vector_projection."
"""Prefix of the names of its parameters in a model."""

Activation = Literal["identity", "tanh"]


class VectorProjectionConfig(Settings):
    """A linear layer on the vectors of texts.

    - ``width``: dimension of the projected vectors
    - ``bias``: whether the layer has a bias
    - ``activation``: function of its outputs; with ``identity``, the map is linear
    """

    width: int = Field(ge=1, le=65_536)
    bias: bool = True
    activation: Activation = "identity"

    def build(self, input_width: int) -> "VectorProjection":
        """Return the layer for vectors (B, input_width)."""
        return VectorProjection(self, input_width)


class VectorProjection(nn.Module):
    """Map pooled vectors (B, D) to (B, K)."""

    def __init__(self, config: VectorProjectionConfig, input_width: int) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(input_width, config.width, config.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the projected vectors, float32."""
        projected = self.linear(vectors.to(self.linear.weight.dtype)).float()
        return torch.tanh(projected) if self.config.activation == "tanh" else projected
