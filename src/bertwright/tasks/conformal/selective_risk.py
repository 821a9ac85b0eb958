"""Thresholds of the confidence below which a model abstains, with a guaranteed risk.

Selection with guaranteed risk (Geifman and El-Yaniv 2017, algorithm 1): a binary search over the
confidences of held-out examples, with an exact binomial bound on the risk at each step. With
probability ``1 - FAILURE_PROBABILITY`` over the held-out examples, at most the fraction ``risk`` of
the predictions that are not withheld is wrong.
"""

import numpy as np
from numpy.typing import NDArray

FAILURE_PROBABILITY = 0.05
"""Probability that the risk is larger than guaranteed."""


def selection_threshold(
    confidences: NDArray[np.floating], is_correct: NDArray[np.bool_], risk: float
) -> float | None:
    """Return the confidence from which predictions keep the risk; None if none do.

    confidences: (N,) probability of the prediction of each held-out example; is_correct: (N,).
    """
    order = np.argsort(confidences, kind="stable")
    ordered, is_wrong = confidences[order], ~is_correct[order]
    num_steps = max(int(np.ceil(np.log2(max(len(order), 2)))), 1)
    bounds = _risk_bounds(is_wrong, FAILURE_PROBABILITY / num_steps)
    low, high, best = 0, len(order) - 1, None
    for _ in range(num_steps):
        middle = (low + high + 1) // 2
        # Equal confidences are kept or withheld together.
        first = int(np.searchsorted(ordered, ordered[middle])) if len(ordered) else 0
        if len(ordered) and bounds[first] <= risk:
            best = high = middle
        else:
            low = middle
    return None if best is None else float(ordered[best])


def _risk_bounds(is_wrong: NDArray[np.bool_], failure: float) -> NDArray[np.float64]:
    """Return an upper bound (N,) on the risk of the examples from each index to the last.

    It is the Clopper-Pearson bound: exceeded with probability ``failure`` at most.
    """
    from scipy.stats import beta  # a model loads without it

    num_wrong = np.cumsum(is_wrong[::-1])[::-1]
    num_kept = np.arange(len(is_wrong), 0, -1)
    bounds = beta.ppf(1.0 - failure, num_wrong + 1, np.maximum(num_kept - num_wrong, 1e-300))
    return np.where(num_wrong == num_kept, 1.0, bounds)
