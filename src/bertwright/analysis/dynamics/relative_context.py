"""The relative effective context length of a group of models (Dai et al. 2019, appendix C)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.core.significance import FloatArray

MIN_RELATIVE_GAIN = 0.01
"""Minimum relative reduction of the perplexity by a longer context."""


def relative_loss_sums(
    losses: FloatArray, hard_fraction: float, text_ids: NDArray[np.integer]
) -> FloatArray:
    """Return sums over each text from which relative effective context lengths follow.

    ``losses`` are those of every model, context length and target, (M, C, T). For two successive
    context lengths, the baseline of a target is the smallest loss of all models with the shorter
    one, and the ``hard_fraction`` of the targets with the largest baselines are hard. The relative
    loss of a model is its loss with the longer context, but no larger than the baseline.

    Returns (M, N, 3 (C - 1)): for each pair of lengths the sums over hard targets of the baseline
    and of the relative loss, and the number of hard targets.
    """
    num_models, num_contexts, num_targets = losses.shape
    values = np.zeros((num_contexts - 1, 3, num_models, num_targets))
    num_hard = max(1, round(hard_fraction * num_targets))
    for step in range(num_contexts - 1):
        baseline = losses[:, step].min(0)
        hard = np.argsort(-baseline, kind="stable")[:num_hard]
        values[step, 0, :, hard] = baseline[hard, None]
        values[step, 1, :, hard] = np.minimum(baseline, losses[:, step + 1]).T[hard]
        values[step, 2, :, hard] = 1
    sums = np.zeros((int(text_ids.max()) + 1, num_models, 3 * (num_contexts - 1)))
    np.add.at(sums, text_ids, values.transpose(3, 2, 0, 1).reshape(num_targets, num_models, -1))
    return sums.swapaxes(0, 1)


def relative_gains(sums: FloatArray) -> FloatArray:
    """Return the relative reductions of the perplexity (..., C - 1), from sums (..., 3 (C - 1))."""
    baseline, relative, num_targets = (sums[..., start::3] for start in range(3))
    gains = -np.expm1((relative - baseline) / np.maximum(num_targets, 1))
    return np.where(num_targets > 0, gains, 0.0)


def relative_context_length(sums: FloatArray, contexts: Sequence[int]) -> FloatArray:
    """Return the first context length whose successor gains too little, (...).

    ``sums`` are those of :func:`relative_loss_sums`, (..., 3 (C - 1)); nan without hard targets.
    """
    gains_enough = relative_gains(sums) >= MIN_RELATIVE_GAIN
    num_steps = np.cumprod(gains_enough, -1).sum(-1)
    return np.where(sums[..., 2] > 0, np.asarray(contexts, np.float64)[num_steps], np.nan)
