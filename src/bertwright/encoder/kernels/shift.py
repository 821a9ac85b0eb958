"""Scores by distance become scores by place.

The plain definition is a gather: ``by_place[i, j] = by_distance[i, column of the distance]``, where
the columns hold the distances from the largest down.
"""

from torch import Tensor


def by_place(scores: Tensor, num_keys: int) -> Tensor:
    """(..., L, L + K - 1) to (..., L, K): queries are the last L of the K places of the keys.

    Column c holds the score at the distance K - 1 - c from query back to key. Rows are skewed by
    reading the same numbers in rows that are one shorter: nothing is gathered.
    """
    length, columns = scores.shape[-2:]
    if length == 1:
        return scores
    flat = scores.flatten(-2)[..., length - 1 : length - 1 + length * (columns - 1)]
    return flat.unflatten(-1, (length, columns - 1))[..., :num_keys]
