"""Adaptive embeddings: narrower tables for rarer tokens (Grave et al. 2017; Baevski and Auli 2019).

Token ids must be ordered by frequency, so a cluster is a range of IDs.
"""

import itertools
from typing import ClassVar, Literal, cast

from pydantic import Field, field_validator
from torch import Tensor, nn

from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.embeddings.embeddings import EmbeddingsConfig


class AdaptiveEmbeddingsConfig(EmbeddingsConfig):
    """One table for each cluster of tokens, all projected to the model's width.

    The first cluster begins at 0, further ones at each of the ``cutoffs``. Each table is narrower
    than the previous one by the factor ``narrower``. Cutoffs beyond the vocabulary are ignored.
    """

    kind: Literal["adaptive"] = "adaptive"
    cutoffs: tuple[int, ...] = Field(max_length=64)
    narrower: int = Field(default=4, ge=2, le=65_536)

    has_single_table: ClassVar[bool] = False

    @field_validator("cutoffs")
    @classmethod
    def _check_cutoffs(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        return check_cutoffs(cutoffs)

    def build(self, vocab_size: int, width: int) -> nn.Module:
        return AdaptiveEmbedding(cluster_ranges(self.cutoffs, vocab_size), width, self.narrower)

    def flops(self, width: int) -> float:
        return 2.0 * width**2


def check_cutoffs(cutoffs: tuple[int, ...]) -> tuple[int, ...]:
    """Return the cutoffs; ValueError unless they are ascending and at least 1."""
    if not cutoffs or cutoffs[0] < 1 or list(cutoffs) != sorted(set(cutoffs)):
        raise ValueError(f"{list(cutoffs)} must be ascending numbers of tokens, such as [8000]")
    return cutoffs


def cluster_ranges(cutoffs: tuple[int, ...], vocab_size: int) -> list[range]:
    """Return the range of token ids of every cluster."""
    bounds = [0, *(c for c in cutoffs if c < vocab_size), vocab_size]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


def cluster_widths(width: int, narrower: int, num_clusters: int) -> list[int]:
    """Return the width of every cluster's table."""
    return [max(1, width // narrower**cluster) for cluster in range(num_clusters)]


class AdaptiveEmbedding(nn.Module):
    """A table (V_i, E_i) and a projection (E, E_i) for each cluster."""

    def __init__(self, clusters: list[range], width: int, narrower: int) -> None:
        super().__init__()
        self.clusters, self.width = clusters, width
        inner = cluster_widths(width, narrower, len(clusters))
        self.tables = nn.ModuleList(
            empty_embedding(len(c), e) for c, e in zip(clusters, inner, strict=True)
        )
        self.projections = nn.ModuleList(nn.Linear(e, width, bias=False) for e in inner)

    def forward(self, token_ids: Tensor) -> Tensor:
        """Embed token_ids (...) int64 as (..., E)."""
        flat = token_ids.flatten()
        first = cast(nn.Linear, self.projections[0]).weight
        embeddings = first.new_zeros(len(flat), self.width)
        for cluster, table, projection in zip(
            self.clusters, self.tables, self.projections, strict=True
        ):
            indices = ((flat >= cluster.start) & (flat < cluster.stop)).nonzero().squeeze(1)
            weight = cast(nn.Embedding, table).weight
            vectors = projection(embedding_lookup(weight, flat[indices] - cluster.start))
            embeddings = embeddings.index_copy(0, indices, vectors)
        return embeddings.view(*token_ids.shape, self.width)
