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


class TokenIdentity(Analysis):
    """In how many words what a linear map makes of their state is nearest, by cosine, to what the
    blocks read of this word and of no other in its text. The map is least squares with a
    ``ridge``, on half of the texts; judged on the other half; beside it the state as it is."""

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
        held: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        for layer in range(own.num_layers):
            states = np.asarray(own.states[layer], np.float64)
            weights = _least_squares(states[choosing], target[choosing], self.ridge)
            chance, total = _chance(own, judging)
            for n, (name, said) in enumerate((("linear", states @ weights), ("as it is", states))):
                right = identified(said, target, own, judging)
                interval = of_ratio(right, total, seed=case.seed)
                baseline = Baseline("by chance", float(chance))
                findings.append(Finding.over_texts(name, interval, layer, baseline=baseline))
                rates[layer, n] = interval.value
                if name == "linear":
                    held.append((right, total))
        fall = of_difference(held[0], held[-1], seed=case.seed)
        findings.append(Finding.over_texts("linear, first layer less last", fall))
        return Found(findings, {"rates": rates})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        linear = [f for f in stored.findings if f["metric"] == "linear"]
        return [
            concluded(
                "the last layer still tells most words",
                "some four fifths in BERT-base",
                linear[-1],
                0.5,
                "half of them",
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
        nearest = (unit(said[of]) @ unit(target[of]).T).argmax(1)
        right[number] = (nearest == np.arange(of.sum())).sum()
    return right


def _chance(own: WordStates, judging: NDArray[np.bool_]) -> tuple[float, NDArray[np.float64]]:
    """The rate of guessing, and how many words each text that judges has."""
    _, total = np.unique(own.text[judging], return_counts=True)
    return len(total) / total.sum(), total.astype(np.float64)


def _least_squares(
    states: NDArray[np.float64], target: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """The map (D, E) of states (W, D) to targets (W, E)."""
    square = states.T @ states + ridge * np.eye(states.shape[1])
    return np.asarray(np.linalg.solve(square, states.T @ target), np.float64)
