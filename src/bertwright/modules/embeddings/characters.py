"""Token embeddings from characters: a convolution over the spelling (Kim et al. 2016)."""

from typing import Annotated, ClassVar, Literal, Self, cast

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.data.tokenization.character_ids import NUM_CHARACTERS
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.embeddings.spelling import SpelledEmbedding, SpelledEmbeddingsConfig
from bertwright.modules.parameter_roles import ParameterRole

HIGHWAY_GATE_BIAS = -2.0
"""Bias of highway gates, which lets them pass nearly all of their input at first."""


FilterSize = Annotated[int, Field(ge=1, le=65_536)]


class CharacterEmbeddingsConfig(SpelledEmbeddingsConfig):
    """Convolution, max pooling, highways and a projection (Jozefowicz et al. 2016).

    ``filters`` are pairs of a filter width in characters and the number of such filters (defaults
    of Peters et al. 2018).
    """

    kind: Literal["characters"] = "characters"
    character_width: int = Field(default=16, ge=1, le=65_536)
    filters: tuple[tuple[FilterSize, FilterSize], ...] = Field(
        default=((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        min_length=1,
        max_length=64,
    )
    highways: int = Field(default=2, ge=0, le=64)

    @model_validator(mode="after")
    def _check_filter_widths(self) -> Self:
        if self.longest < (wide := max(wide for wide, _ in self.filters)):
            raise ValueError(f"longest is {self.longest}, but a filter reads {wide} characters")
        return self

    def build(self, vocab_size: int, width: int) -> nn.Module:
        return CharacterEmbedding(self, vocab_size, width)

    def flops(self, width: int) -> float:
        """Return the FLOPs of a token's first occurrence in a batch; repeats are free."""
        num_channels = sum(number for _, number in self.filters)
        convolution = sum(
            2 * (self.longest - filter_width + 1) * filter_width * self.character_width * number
            for filter_width, number in self.filters
        )
        return convolution + self.highways * 4 * num_channels**2 + 2 * num_channels * width


class CharacterEmbedding(SpelledEmbedding):
    """Character-based token embeddings."""

    def __init__(self, config: CharacterEmbeddingsConfig, vocab_size: int, width: int) -> None:
        super().__init__(vocab_size, config.longest)
        num_channels = sum(number for _, number in config.filters)
        inner = config.character_width
        self.characters = empty_embedding(NUM_CHARACTERS, inner)
        self.filters = nn.ModuleList(nn.Linear(inner * w, n) for w, n in config.filters)
        self.highways = nn.ModuleList(Highway(num_channels) for _ in range(config.highways))
        self.projection = nn.Linear(num_channels, width)

    def forward(self, token_ids: Tensor) -> Tensor:
        """Embed token_ids (...) int64 as (..., E), computing each distinct token once."""
        distinct, inverse = torch.unique(token_ids, return_inverse=True)
        return embedding_lookup(self._embed_spellings(self.spelling_of(distinct)), inverse)

    def _embed_spellings(self, characters: Tensor) -> Tensor:
        """Embed characters (N, C) as (N, E)."""
        x = embedding_lookup(self.characters.weight, characters).transpose(1, 2)
        pooled: list[Tensor] = []
        for layer in self.filters:
            linear = cast(nn.Linear, layer)  # may be quantised
            kernel = linear.weight.view(len(linear.weight), x.shape[1], -1)
            pooled.append(F.relu(F.conv1d(x, kernel, linear.bias).amax(2)))
        features = torch.cat(pooled, dim=1)
        for highway in self.highways:
            features = highway(features)
        return self.projection(features)


class Highway(nn.Module):
    """gate * relu(W x + b) + (1 - gate) * x (Srivastava et al. 2015)."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "transform_and_gate.weight": ParameterRole("matrix", num_parts=2)
    }

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform_and_gate = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        transformed, gate = self.transform_and_gate(x).chunk(2, dim=-1)
        gate = torch.sigmoid(gate + HIGHWAY_GATE_BIAS)
        return gate * F.relu(transformed) + (1 - gate) * x
