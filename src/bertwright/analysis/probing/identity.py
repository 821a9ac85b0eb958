"""Whether a state still tells which piece it came from (Brunner et al. 2020, section 4)."""

from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.geometry.contextuality import unit
from bertwright.analysis.texts import lacks_halves
from bertwright.analysis.word_states import SITES, WordStates, word_states
from bertwright.significance import halves, of_difference, of_ratio

MORE = "linear, last layer less places alone"

ALIKE = 1e-6
"""Difference of cosines that is rounding, of a word that stands in a text twice."""


class TokenIdentity(Analysis):
    """In how many words what a linear map makes of their state is nearest, by cosine, to what the
    blocks read of this word, or of one that is read alike, of all in its text. The map is least
    squares with a ``ridge``, on half of the texts; judged on the other half; beside it the state as
    it is, and what the place of a word alone tells: the mean of what is read in it."""

    kind: Literal["token-identity"] = "token-identity"
    ridge: float = Field(default=1.0, ge=0)
    number = "B11"
    group = "identifiability"
    question = "Does a state still tell which word it is of?"
    source = "Brunner et al. 2020"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        return lacks_halves(case.texts) or super().lacks(case)

    def run(self, case: Case) -> Found:
        own = word_states(case)
        choosing, judging = (np.isin(own.text, of) for of in halves(len(case.texts), case.seed))
        target = np.asarray(own.states[0], np.float64)
        findings: list[Finding] = []
        rates = np.zeros((own.num_layers, 2))
        chance, total = _chance(target, own, judging)
        held: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        for layer in range(own.num_layers):
            states = np.asarray(own.states[layer], np.float64)
            weights = _least_squares(states[choosing], target[choosing], self.ridge)
            for n, (name, said) in enumerate((("linear", states @ weights), ("as it is", states))):
                right = identified(said, target, own, judging)
                interval = of_ratio(right, total, seed=case.seed)
                baseline = Baseline("by chance", chance)
                findings.append(
                    Finding.over_texts(name, interval, layer, baseline=baseline, of_states=True)
                )
                rates[layer, n] = interval.value
                if name == "linear":
                    held.append((right, total))
        fall = of_difference(held[0], held[-1], seed=case.seed)
        findings.append(Finding.over_texts("linear, first layer less last", fall))
        by_place = identified(_by_place(target, own, choosing), target, own, judging)
        more = of_difference(held[-1], (by_place, total), seed=case.seed)
        baseline = Baseline("by places alone", float(by_place.sum() / total.sum()))
        findings.append(Finding.over_texts(MORE, more, baseline=baseline))
        return Found(findings, {"rates": rates})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "the last layer still tells words, more than their places do",
                "some four fifths in BERT-base",
                stored.of_all(MORE),
                0.0,
                "as many",
            ),
            concluded(
                "it tells fewer than what the blocks read",
                "falls with depth",
                stored.of_all("linear, first layer less last"),
                0.0,
                "as many",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        for number, name in enumerate(("linear map", "as it is")):
            axes.plot(stored.arrays["rates"][:, number], marker="o", label=name)
        axes.set_xlabel("layer, 0 before the blocks")
        axes.set_ylabel("share of words identified")
        axes.set_ylim(0, 1.02)
        axes.legend()


def identified(
    said: NDArray[np.float64],
    target: NDArray[np.float64],
    own: WordStates,
    judging: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Of every text that judges, how many of its words are nearest to themselves."""
    texts = np.unique(own.text[judging])
    right = np.zeros(len(texts))
    for number, text in enumerate(texts):
        of = own.text == text
        near = unit(said[of]) @ unit(target[of]).T
        right[number] = (near.diagonal() >= near.max(1) - ALIKE).sum()
    return right


def _chance(
    target: NDArray[np.float64], own: WordStates, judging: NDArray[np.bool_]
) -> tuple[float, NDArray[np.float64]]:
    """The rate of guessing, and how many words each text that judges has."""
    texts, total = np.unique(own.text[judging], return_counts=True)
    guessed = 0.0
    for text, number in zip(texts, total, strict=True):
        read = unit(target[own.text == text])
        guessed += (read @ read.T >= 1 - ALIKE).sum() / number
    return float(guessed / total.sum()), total.astype(np.float64)


def _by_place(
    target: NDArray[np.float64], own: WordStates, choosing: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Of every word (W, E) the mean of what is read in its place in the texts that are chosen; of
    all places where none of them has it."""
    first = np.searchsorted(own.text, own.text)
    place = np.arange(len(own.text)) - first
    found = np.broadcast_to(target[choosing].mean(0), target.shape).copy()
    for number in np.unique(place[choosing]):
        found[place == number] = target[choosing & (place == number)].mean(0)
    return found


def _least_squares(
    states: NDArray[np.float64], target: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """The map (D, E) of states (W, D) to targets (W, E)."""
    square = states.T @ states + ridge * np.eye(states.shape[1])
    return np.asarray(np.linalg.solve(square, states.T @ target), np.float64)
