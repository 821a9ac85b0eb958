"""How what a sublayer writes goes on: alone, added to what it reads, weighed with all that was
written before, or in two streams that can be run backwards."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.block import Join, added, replaced
from bertwright.encoder.passage import Passage
from bertwright.encoder.reversing import Reversing
from bertwright.encoder.roles import Role


class Residual(Choice):
    """The axis."""

    looks_back: ClassVar[bool] = False
    """Whether a sublayer is told of all that came before it, so that none may be left out."""

    is_reversible: ClassVar[bool] = False
    """Whether the states within are found again on the way back, and not kept."""

    def join(self, block: int) -> Join:
        """What the sublayers of a block do with what they write."""
        return added

    def weights(self, number: int) -> nn.Module | None:
        """What stands behind a sublayer, given how many states came before what it makes."""
        return None

    def passage(self, depth: Passage) -> Passage:
        """The way of the states through the blocks, given that of the depth."""
        return depth


class Plain(Residual):
    """The states are what they were, and what was written (He et al. 2016), from block ``start``
    on; before it they are what was written (1 in ELMo)."""

    kind: Literal["plain"] = "plain"
    start: int = Field(default=0, ge=0, le=1_024)

    def join(self, block: int) -> Join:
        return added if block >= self.start else replaced


class Replaced(Residual):
    """The states are what was written."""

    kind: Literal["none"] = "none"

    def join(self, block: int) -> Join:
        return replaced


class Weighted(Residual):
    """The states behind every sublayer are a learned sum of what all sublayers before have made and
    of the embeddings; in the beginning they are what the last of them has made (Pagliardini et al.
    2024; in every sublayer, Charpentier and Samuel 2024).

    All of them stay in memory until the last block.
    """

    kind: Literal["weighted"] = "weighted"

    looks_back: ClassVar[bool] = True

    def weights(self, number: int) -> nn.Module:
        return DepthWeights(number + 1)


class DepthWeights(nn.Module):
    """sum_j w_j x_j over all states so far."""

    parameter_roles: ClassVar[dict[str, Role]] = {"weights": Role("mixture")}

    def __init__(self, number: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(number))

    def forward(self, made: list[Tensor]) -> Tensor:
        """(B, L, D) each to (B, L, D)."""
        total = self.weights[0] * made[0]
        for weight, each in zip(self.weights[1:], made[1:], strict=True):
            total = torch.addcmul(total, weight, each)
        return total


class Reversible(Residual):
    """Two streams, both the embeddings at first: attention reads the second and adds to the first,
    the feed-forward reads the first and adds to the second. Their mean goes on from the last block
    (Gomez et al. 2017; Kitaev et al. 2020, section 3).
    """

    kind: Literal["reversible"] = "reversible"

    is_reversible: ClassVar[bool] = True

    def passage(self, depth: Passage) -> Passage:
        return Reversing()
