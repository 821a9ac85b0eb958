"""When to say that there is no answer: a threshold, chosen on examples that were held out.

The official script for questions that may have no answer (Rajpurkar et al. 2018) reports the best
that any threshold reaches on the examples that it is chosen on. Here, as with temperatures, each
half is also judged by the threshold of the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Doubts:
    """Of each of N examples by how much "no answer" is ahead of the best answer, and what is right
    of that answer and of none, from 0 to 1; (N,) each."""

    lead: NDArray[np.float64]
    answered: NDArray[np.float64]
    unanswered: NDArray[np.float64]

    def part(self, of: slice) -> "Doubts":
        """Some of the examples."""
        return Doubts(self.lead[of], self.answered[of], self.unanswered[of])

    def right(self, threshold: float) -> NDArray[np.float64]:
        """What is right of each answer (N,) where none is said above this lead."""
        return np.where(self.lead > threshold, self.unanswered, self.answered)


@dataclass(frozen=True)
class Threshold:
    """A threshold, and the mean of what is right with 0 in its place and with one that was chosen
    on other examples."""

    threshold: float
    f1_before: float
    f1: float

    def as_dict(self) -> Mapping[str, float]:
        """Plain data."""
        return vars(self)


def settle(doubts: Doubts) -> Threshold:
    """The threshold of a model that had these doubts; 0 where those of the halves help nobody."""
    halves = [doubts.part(slice(begin, None, 2)) for begin in (0, 1)]
    right = np.concatenate(
        [mine.right(best_threshold(other)) for mine, other in (halves, halves[::-1])]
    )
    before, after = float(doubts.right(0.0).mean()), float(right.mean())
    if after <= before:
        return Threshold(0.0, before, before)
    return Threshold(best_threshold(doubts), before, after)


def best_threshold(doubts: Doubts) -> float:
    """The threshold that makes most right, midway between two leads; 0 where all are as good."""
    if not len(doubts.lead):
        return 0.0
    order = np.argsort(-doubts.lead, kind="stable")
    lead, gain = doubts.lead[order], (doubts.unanswered - doubts.answered)[order]
    gained = np.concatenate([[0.0], np.cumsum(gain)])
    # Leads that are the same stand on the same side.
    apart = np.concatenate([[True], lead[1:] < lead[:-1], [True]])
    gained[~apart] = -np.inf
    if gained.max() <= gained[int((lead > 0).sum())]:
        return 0.0
    number, bounds = int(gained.argmax()), np.concatenate([[np.inf], lead, [-np.inf]])
    return _between(float(bounds[number]), float(bounds[number + 1]))


def _between(above: float, below: float) -> float:
    """A number between two, one of which may be infinite."""
    if np.isinf(above):
        return below + 1.0
    return above - 1.0 if np.isinf(below) else (above + below) / 2
