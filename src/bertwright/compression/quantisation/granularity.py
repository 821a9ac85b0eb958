"""The axis of granularities: which weights of a matrix share a scale."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from bertwright.axes import Choice


class Granularity(Choice):
    """The axis. Smaller groups are nearer to the weights, and each has a scale to be stored."""

    def group(self, shape: Sequence[int], parts: int) -> tuple[int, int]:
        """How many rows and columns a group has, of a matrix of this shape in which so many are
        stored, one above the other."""
        raise TypeError(f"{type(self).__name__} is an axis, not a granularity")


class Whole(Granularity):
    """All weights of a matrix; of several that are stored in one, each has its own scale."""

    kind: Literal["tensor"] = "tensor"

    def group(self, shape: Sequence[int], parts: int) -> tuple[int, int]:
        return shape[0] // parts, shape[1]


class Row(Granularity):
    """Those of one output."""

    kind: Literal["row"] = "row"

    def group(self, shape: Sequence[int], parts: int) -> tuple[int, int]:
        return 1, shape[1]


class Group(Granularity):
    """Those of ``size`` neighbouring inputs to one output, or with ``axis: outputs`` all that so
    many neighbouring outputs have (Shen et al. 2020, section 3.2). The last may be fewer; but of
    matrices that are stored in one each has groups of its own, all of as many outputs as divide
    those of a matrix."""

    kind: Literal["group"] = "group"
    size: int = Field(default=128, ge=1, le=1 << 20)
    axis: Literal["inputs", "outputs"] = "inputs"

    def group(self, shape: Sequence[int], parts: int) -> tuple[int, int]:
        if self.axis == "inputs":
            return 1, min(self.size, shape[1])
        rows = shape[0] // parts
        most = min(self.size, rows)
        if parts > 1:
            most = max(number for number in range(1, most + 1) if rows % number == 0)
        return most, shape[1]
