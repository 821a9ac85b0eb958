"""Masks of the weights to keep, by a score of each."""

import torch
from torch import Tensor

MIN_DENSITY = 0.005
"""The fraction of a matrix kept whatever the threshold (Sanh et al. 2020, the code)."""


def num_kept_weights(num_weights: int, density: float) -> int:
    """Return the number of weights to keep, rounded down, so that 0.29 of 100 is 29."""
    return int(density * num_weights + 1e-6)


@torch.no_grad()
def top_mask(values: Tensor, density: float) -> Tensor:
    """Return a bool mask of the highest values; among equal ones the first."""
    return _top_k_mask(values, num_kept_weights(values.numel(), density))


@torch.no_grad()
def threshold_mask(scores: Tensor, threshold: float) -> Tensor:
    """Return a bool mask of scores whose sigmoid exceeds a threshold, at least ``MIN_DENSITY``."""
    mask = torch.sigmoid(scores) > threshold
    min_kept = max(int(MIN_DENSITY * scores.numel()), 1)
    return mask if int(mask.sum()) >= min_kept else _top_k_mask(scores, min_kept)


def straight_through(mask: Tensor, scores: Tensor) -> Tensor:
    """Return a mask as numbers with the gradient of the scores (straight-through estimator)."""
    return mask.to(scores.dtype) + (scores - scores.detach())


def _top_k_mask(values: Tensor, num_kept: int) -> Tensor:
    flat = values.flatten().float()
    if num_kept in (0, len(flat)):
        return torch.full_like(values, bool(num_kept), dtype=torch.bool)
    threshold = flat.topk(num_kept, sorted=False).values.amin()
    mask = flat > threshold
    ties = (flat == threshold).nonzero().flatten()
    mask[ties[: num_kept - int(mask.sum())]] = True
    return mask.view_as(values)
