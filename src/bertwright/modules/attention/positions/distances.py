"""Distances between queries and keys, and conversion of scores by distance to scores by key."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.modules.token_tensors import TokenInfo


@dataclass(frozen=True, eq=False)
class RelativeDistances:
    """All possible distances, ``values`` (N,) int64 in descending order: N = Lq + Lk - 1.

    N is larger if some sequences are read backward. ``index`` (B or 1, Lq, Lk) is the index in
    ``values`` of the distance between each query and key. It is None if the queries are the last
    tokens of the keys, in order; then indices shift by one from query to query.
    """

    values: Tensor
    num_keys: int
    index: Tensor | None = None

    @staticmethod
    def between(query_info: TokenInfo, key_info: TokenInfo) -> "RelativeDistances":
        """Return the distances of one pass.

        Within a document a distance is a difference of positions. Query tokens have the position
        that they predict. In sequences read backward, distances are negated.
        """
        num_queries, num_keys = query_info.index.shape[1], key_info.index.shape[1]
        device = query_info.index.device
        num_values = num_queries + num_keys - 1
        if query_info.is_backward is not None:
            # Memory comes after sequences that are read backward.
            num_values = 2 * num_keys - 1
        values = num_keys - 1 - torch.arange(num_values, device=device)
        index = None
        is_irregular = query_info.is_query_stream is not None or query_info.is_backward is not None
        # Exported graphs serve any length, and shifting would fail for length 1.
        if is_irregular or torch.compiler.is_exporting():
            query_positions = query_info.resolved_position_ids[:, :, None]
            key_positions = key_info.resolved_position_ids[:, None, :]
            index = num_keys - 1 - (query_positions - key_positions)
        return RelativeDistances(values, num_keys, index)

    def to_query_key(self, scores: Tensor) -> Tensor:
        """Convert scores by query and distance (B, H, Lq, N) to scores by query and key."""
        if self.index is None:
            return relative_shift(scores, self.num_keys)
        index = self.index[:, None].expand(*scores.shape[:3], self.num_keys)
        return scores.gather(-1, index)

    def to_query_key_from_keys(self, scores: Tensor) -> Tensor:
        """Convert scores by key and distance (B, H, Lk, N) to scores by query and key."""
        if self.index is None:
            num_queries = len(self.values) - self.num_keys + 1
            return relative_shift(scores.flip(-1), num_queries).transpose(-1, -2)
        index = self.index.transpose(-1, -2)[:, None]
        return scores.gather(-1, index.expand(*scores.shape[:3], -1)).transpose(-1, -2)

    def to_bias(self, values: Tensor) -> Tensor:
        """Convert values by head and distance (H, N) to a bias (B or 1, H, Lq, Lk)."""
        if self.index is None:
            return values.unfold(-1, self.num_keys, 1).flip(1)[None]
        return values[:, self.index].transpose(0, 1)


def relative_shift(scores: Tensor, num_keys: int) -> Tensor:
    """Convert scores by distance (..., L, L + K - 1) to scores by key (..., L, K).

    The queries are the last L of K positions. Column c holds the score at distance K - 1 - c from
    query back to key. Reading the same memory with rows one element shorter shifts each row without
    a gather.
    """
    length, columns = scores.shape[-2:]
    if length == 1:
        return scores
    flat = scores.flatten(-2)[..., length - 1 : length - 1 + length * (columns - 1)]
    return flat.unflatten(-1, (length, columns - 1))[..., :num_keys]
