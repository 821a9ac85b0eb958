"""Thresholds of the confidence below which a model abstains, with a guaranteed risk.

Selection with guaranteed risk (Geifman and El-Yaniv 2017, algorithm 1): a binary search over the
confidences of held-out examples, with an exact binomial bound on the risk at each step. With
probability ``1 - FAILURE_PROBABILITY`` over the held-out examples, at most the fraction ``risk`` of
the predictions that are not withheld is wrong.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FAILURE_PROBABILITY = 0.05
"""Probability that the risk is larger than guaranteed."""


def selection_thresholds(
    confidences: NDArray[np.floating], is_correct: NDArray[np.bool_], risks: Sequence[float]
) -> list[float | None]:
    """Return the confidence from which predictions keep each risk; None if none does.

    confidences: (N,) probability of the prediction of each held-out example; is_correct: (N,).
    """
    order = np.argsort(confidences, kind="stable")
    ordered = confidences[order]
    num_steps = max(int(np.ceil(np.log2(max(len(order), 2)))), 1)
    bounds = _risk_bounds(~is_correct[order], FAILURE_PROBABILITY / num_steps)
    # Equal confidences are kept or withheld together.
    bounds = bounds[np.searchsorted(ordered, ordered)]
    return [_search_threshold(ordered, bounds, risk, num_steps) for risk in risks]


def _search_threshold(
    confidences: NDArray[np.floating], bounds: NDArray[np.float64], risk: float, num_steps: int
) -> float | None:
    """Return the lowest of the ascending confidences found whose risk bound (N,) is kept."""
    low, high, best = 0, len(confidences) - 1, None
    for _ in range(num_steps if len(confidences) else 0):
        middle = (low + high + 1) // 2
        if bounds[middle] <= risk:
            best = high = middle
        else:
            low = middle
    return None if best is None else float(confidences[best])


def _risk_bounds(is_wrong: NDArray[np.bool_], failure: float) -> NDArray[np.float64]:
    """Return an upper bound (N,) on the risk of the examples from each index to the last.

    It is the Clopper-Pearson bound: exceeded with probability ``failure`` at most.
    """
    from scipy.stats import beta  # a model loads without it

    num_wrong = np.cumsum(is_wrong[::-1])[::-1]
    num_kept = np.arange(len(is_wrong), 0, -1)
    bounds = beta.ppf(1.0 - failure, num_wrong + 1, np.maximum(num_kept - num_wrong, 1e-300))
    return np.where(num_wrong == num_kept, 1.0, bounds)
