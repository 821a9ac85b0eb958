"""Tables that are narrower the rarer their pieces are (Grave et al. 2017; Baevski and Auli 2019).

Pieces are numbered by their frequency, so a cluster is a range of them.
"""

import itertools
from typing import ClassVar, Literal, cast

from pydantic import Field, field_validator
from torch import Tensor, nn

from bertwright.encoder.embeddings import EmbeddingChoice
from bertwright.encoder.kernels.lookup import lookup, table


class Adaptive(EmbeddingChoice):
    """One table for each cluster of pieces, all projected up to the model.

    A cluster begins at each of the ``cutoffs``; its table is narrower than that of the cluster
    before it by the factor ``narrower``. Cutoffs beyond the vocabulary are left out.
    """

    kind: Literal["adaptive"] = "adaptive"
    cutoffs: tuple[int, ...] = Field(max_length=64)
    narrower: int = Field(default=4, ge=2, le=65_536)

    one_table: ClassVar[bool] = False

    @field_validator("cutoffs")
    @classmethod
    def _cutoffs(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        return ascending(cutoffs)

    def build(self, vocabulary_size: int, width: int) -> nn.Module:
        return AdaptiveTable(clusters(self.cutoffs, vocabulary_size), width, self.narrower)

    def operations(self, width: int) -> float:
        return 2.0 * width**2


def ascending(cutoffs: tuple[int, ...]) -> tuple[int, ...]:
    """The cutoffs; ValueError where they do not ascend from at least 1."""
    if not cutoffs or cutoffs[0] < 1 or list(cutoffs) != sorted(set(cutoffs)):
        raise ValueError(f"{list(cutoffs)} must be ascending numbers of pieces, such as [8000]")
    return cutoffs


def clusters(cutoffs: tuple[int, ...], vocabulary_size: int) -> list[range]:
    """The pieces of every cluster."""
    bounds = [0, *(c for c in cutoffs if c < vocabulary_size), vocabulary_size]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


def widths(width: int, narrower: int, number: int) -> list[int]:
    """The widths of the tables of so many clusters."""
    return [max(1, width // narrower**cluster) for cluster in range(number)]


class AdaptiveTable(nn.Module):
    """A table (V_i, E_i) and a projection (E, E_i) for each cluster."""

    def __init__(self, pieces: list[range], width: int, narrower: int) -> None:
        super().__init__()
        self.clusters, self.width = pieces, width
        inner = widths(width, narrower, len(pieces))
        self.tables = nn.ModuleList(table(len(p), e) for p, e in zip(pieces, inner, strict=True))
        self.projections = nn.ModuleList(nn.Linear(e, width, bias=False) for e in inner)

    def forward(self, pieces: Tensor) -> Tensor:
        """pieces (...) int64 to (..., E)."""
        flat = pieces.flatten()
        first = cast(nn.Linear, self.projections[0]).weight
        found = first.new_zeros(len(flat), self.width)
        for cluster, rows, projection in zip(
            self.clusters, self.tables, self.projections, strict=True
        ):
            where = ((flat >= cluster.start) & (flat < cluster.stop)).nonzero().squeeze(1)
            weight = cast(nn.Embedding, rows).weight
            vectors = projection(lookup(weight, flat[where] - cluster.start))
            found = found.index_copy(0, where, vectors)
        return found.view(*pieces.shape, self.width)
