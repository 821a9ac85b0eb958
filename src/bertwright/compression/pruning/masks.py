"""Which weights stay, by a score of each."""

import torch
from torch import Tensor

LEAST = 0.005
"""The share of a matrix that stays whatever the threshold (Sanh et al. 2020, the code)."""


def how_many(number: int, share: float) -> int:
    """Of so many the share, rounded down; a little more is taken, because 0.29 of 100 are 29."""
    return int(share * number + 1e-6)


@torch.no_grad()
def highest(values: Tensor, share: float) -> Tensor:
    """Where the highest of them stand, bool: their number times the share, rounded down; of equals
    the first."""
    return _best(values, how_many(values.numel(), share))


@torch.no_grad()
def above(scores: Tensor, threshold: float) -> Tensor:
    """Where the sigmoid of a score is above a threshold, bool; the highest :data:`LEAST` of them
    where that leaves fewer."""
    found = torch.sigmoid(scores) > threshold
    least = max(int(LEAST * scores.numel()), 1)
    return found if int(found.sum()) >= least else _best(scores, least)


def as_scores(mask: Tensor, scores: Tensor) -> Tensor:
    """A mask as numbers, whose gradient is that of the scores themselves: straight through."""
    return mask.to(scores.dtype) + (scores - scores.detach())


def _best(values: Tensor, number: int) -> Tensor:
    flat = values.flatten().float()
    if number in (0, len(flat)):
        return torch.full_like(values, bool(number), dtype=torch.bool)
    least = flat.topk(number, sorted=False).values.amin()
    found = flat > least
    equals = (flat == least).nonzero().flatten()
    found[equals[: number - int(found.sum())]] = True
    return found.view_as(values)
