"""The axis of granularities: which weights of a matrix share a scale."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from bertwright.core.config import Config


class Granularity(Config):
    """The axis of granularities; smaller groups are more exact but need more scales."""

    def group_shape(self, shape: Sequence[int], num_parts: int) -> tuple[int, int]:
        """Return the rows and columns of a group, for a matrix of ``num_parts`` stacked parts."""
        raise TypeError(f"{type(self).__name__} is an axis, not a granularity")


class PerTensor(Granularity):
    """A granularity with one scale per matrix; stacked matrices have one each."""

    kind: Literal["tensor"] = "tensor"

    def group_shape(self, shape: Sequence[int], num_parts: int) -> tuple[int, int]:
        return shape[0] // num_parts, shape[1]


class PerRow(Granularity):
    """A granularity with one scale per output."""

    kind: Literal["row"] = "row"

    def group_shape(self, shape: Sequence[int], num_parts: int) -> tuple[int, int]:
        return 1, shape[1]


class PerGroup(Granularity):
    """A granularity with one scale per group of ``size`` neighbouring inputs of an output.

    With ``axis: outputs``, a group holds all weights of neighbouring outputs (Shen et al. 2020,
    section 3.2). The last group may be smaller. Stacked matrices each have groups of equal size:
    the largest size up to ``size`` that divides their number of outputs.
    """

    kind: Literal["group"] = "group"
    size: int = Field(default=128, ge=1, le=1 << 20)
    axis: Literal["inputs", "outputs"] = "inputs"

    def group_shape(self, shape: Sequence[int], num_parts: int) -> tuple[int, int]:
        if self.axis == "inputs":
            return 1, min(self.size, shape[1])
        rows = shape[0] // num_parts
        group_rows = min(self.size, rows)
        if num_parts > 1:
            group_rows = max(n for n in range(1, group_rows + 1) if rows % n == 0)
        return group_rows, shape[1]
