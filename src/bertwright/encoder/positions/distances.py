"""How far keys stand from queries, and how what is known of distances comes to its places."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.encoder.kernels.shift import by_place
from bertwright.encoder.stream import Coordinates


@dataclass(frozen=True, eq=False)
class Distances:
    """All distances there may be, ``values`` (N,) int64 from the largest down: N = Lq + Lk - 1,
    more where some rows are read backward.

    ``index`` (B or 1, Lq, Lk) is the column of the distance between a query and a key; None where
    queries are the last of the keys' places, one after the other, so that columns move by one from
    place to place.
    """

    values: Tensor
    num_keys: int
    index: Tensor | None = None

    @staticmethod
    def between(queries: Coordinates, keys: Coordinates) -> "Distances":
        """The distances of one pass. Within a document, those between places are those between
        positions; places that ask stand elsewhere than what they ask about, and of rows that are
        read backward they are the opposite."""
        num_queries, num_keys = queries.place.shape[1], keys.place.shape[1]
        device = queries.place.device
        num_values = num_queries + num_keys - 1
        if queries.backward is not None:
            # What is remembered stands behind such rows.
            num_values = 2 * num_keys - 1
        values = num_keys - 1 - torch.arange(num_values, device=device)
        index = None
        moved = queries.asking is not None or queries.backward is not None
        # Moving columns say nothing of a row of one place, and a graph serves rows of any length.
        if moved or torch.compiler.is_exporting():
            index = num_keys - 1 - (queries.at[:, :, None] - keys.at[:, None, :])
        return Distances(values, num_keys, index)

    def placed(self, scores: Tensor) -> Tensor:
        """Scores by query and distance (B, H, Lq, N) to scores by query and key."""
        if self.index is None:
            return by_place(scores, self.num_keys)
        index = self.index[:, None].expand(*scores.shape[:3], self.num_keys)
        return scores.gather(-1, index)

    def placed_from_keys(self, scores: Tensor) -> Tensor:
        """Scores by key and distance (B, H, Lk, N) to scores by query and key."""
        if self.index is None:
            num_queries = len(self.values) - self.num_keys + 1
            return by_place(scores.flip(-1), num_queries).transpose(-1, -2)
        index = self.index.transpose(-1, -2)[:, None]
        return scores.gather(-1, index.expand(*scores.shape[:3], -1)).transpose(-1, -2)

    def spread(self, values: Tensor) -> Tensor:
        """Values by head and distance (H, N) to (B or 1, H, Lq, Lk)."""
        if self.index is None:
            return values.unfold(-1, self.num_keys, 1).flip(1)[None]
        return values[:, self.index].transpose(0, 1)
