"""The no-answer threshold of SQuAD 2.0, fitted on held-out examples.

The official script (Rajpurkar et al. 2018) reports the best score over all thresholds on the same
examples that the threshold is chosen on. Here, as with temperatures, each half of the examples is
scored with the threshold of the other half.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class NoAnswerScores:
    """Margin of "no answer" over the best span, and the F1 of either answer, (N,) each."""

    margin: NDArray[np.float64]
    answer_f1: NDArray[np.float64]
    no_answer_f1: NDArray[np.float64]

    def subset(self, indices: slice) -> "NoAnswerScores":
        """Return some of the examples."""
        return NoAnswerScores(
            self.margin[indices], self.answer_f1[indices], self.no_answer_f1[indices]
        )

    def f1_at(self, threshold: float) -> NDArray[np.float64]:
        """Return the F1 (N,) when margins above a threshold mean no answer."""
        return np.where(self.margin > threshold, self.no_answer_f1, self.answer_f1)


@dataclass(frozen=True)
class NoAnswerThreshold:
    """A threshold, and the mean F1 with threshold 0 and with cross-fitted thresholds."""

    threshold: float
    f1_before: float
    f1: float

    def as_dict(self) -> Mapping[str, float]:
        """Return plain data."""
        return vars(self)


def fit_threshold(scores: NoAnswerScores) -> NoAnswerThreshold:
    """Fit the threshold; 0 if cross-fitted thresholds do not help."""
    halves = [scores.subset(slice(begin, None, 2)) for begin in (0, 1)]
    f1 = np.concatenate(
        [half.f1_at(best_threshold(other)) for half, other in (halves, halves[::-1])]
    )
    before, after = float(scores.f1_at(0.0).mean()), float(f1.mean())
    if after <= before:
        return NoAnswerThreshold(0.0, before, before)
    return NoAnswerThreshold(best_threshold(scores), before, after)


def best_threshold(scores: NoAnswerScores) -> float:
    """Return the threshold with the best F1, midway between two margins; 0 on ties."""
    if not len(scores.margin):
        return 0.0
    order = np.argsort(-scores.margin, kind="stable")
    margins, gain = scores.margin[order], (scores.no_answer_f1 - scores.answer_f1)[order]
    total_gain = np.concatenate([[0.0], np.cumsum(gain)])
    # No threshold separates equal margins.
    is_boundary = np.concatenate([[True], margins[1:] < margins[:-1], [True]])
    total_gain[~is_boundary] = -np.inf
    if total_gain.max() <= total_gain[int((margins > 0).sum())]:
        return 0.0
    index, bounds = int(total_gain.argmax()), np.concatenate([[np.inf], margins, [-np.inf]])
    above, below = float(bounds[index]), float(bounds[index + 1])
    if np.isinf(above):
        return below + 1.0
    return above - 1.0 if np.isinf(below) else (above + below) / 2
