"""Nonconformity scores: how little a class or a number fits what a model predicts for an example.

The prediction set of an example holds all classes whose score is at most a quantile of the scores
of the correct classes of other, exchangeable examples (Vovk et al. 2005; Angelopoulos and Bates
2021, section 1).
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.core.rng import stream_key, uniform

FloatArray = NDArray[np.floating]

SetMethod = Literal["lac", "aps"]
"""``lac``: the least ambiguous sets, smallest on average, which may be empty where no class fits
(Sadinle et al. 2019). ``aps``: adaptive sets, larger where the model is less certain, and never
empty (Romano et al. 2020)."""


def lac_scores(probabilities: FloatArray, random_numbers: FloatArray) -> FloatArray:
    """Return 1 minus the probabilities (N, K)."""
    return 1.0 - probabilities


def aps_scores(probabilities: FloatArray, random_numbers: FloatArray) -> FloatArray:
    """Return the total probability (N, K) of the classes before each, and a part of its own.

    Classes are ordered by probability; ``random_numbers`` (N,) in [0, 1) are the part of a class's
    own probability that counts, without which sets would be too large (Romano et al. 2020, equation
    5). The score of the most probable class is 0, so that no set is empty.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ordered = np.take_along_axis(probabilities, order, 1)
    scores = np.cumsum(ordered, 1) - ordered + random_numbers[:, None] * ordered
    scores[:, :1] = 0.0
    result = np.empty_like(scores)
    np.put_along_axis(result, order, scores, 1)
    return result


SET_SCORES: dict[SetMethod, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "lac": lac_scores,
    "aps": aps_scores,
}
"""Scores (N, K) of all classes, given probabilities (N, K) and random numbers (N,), by method."""


def class_scores(
    method: SetMethod, probabilities: Sequence[FloatArray], texts: Sequence[str | None]
) -> list[FloatArray]:
    """Return the scores (K,) of the classes in each decision of an example.

    The random numbers are a function of the ``texts`` of the example and the decision.
    """
    if not len(probabilities):
        return []
    stream = stream_key(0, "conformal", *(text or "" for text in texts))
    random_numbers = uniform(stream, np.arange(len(probabilities)))
    compute = SET_SCORES[method]
    return [
        compute(p.astype(np.float64)[None], random_numbers[n : n + 1])[0]
        for n, p in enumerate(probabilities)
    ]


def coverage_quantiles(
    scores: FloatArray, groups: NDArray[np.integer], coverages: FloatArray
) -> NDArray[np.float64]:
    """Return the smallest thresholds (C,) that cover a decision of a new example so often.

    scores: (N,) of the correct classes; groups: (N,) number of the example of each decision;
    coverages: (C,) probabilities. Every one of G examples has a weight of 1 / (G + 1), shared by
    its decisions, and infinity has the rest (Lee et al. 2023, section 3.1). With one decision per
    example, a threshold is the score with rank ceil((G + 1) coverage), and coverage is exceeded by
    1 / (G + 1) at most. It is infinite if there are too few examples.
    """
    _, group_of_score, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    weights = 1.0 / ((len(sizes) + 1) * sizes[group_of_score])
    order = np.argsort(scores, kind="stable")
    indices = np.searchsorted(np.cumsum(weights[order]), coverages - 1e-9)
    return np.append(scores[order], np.inf)[indices]
