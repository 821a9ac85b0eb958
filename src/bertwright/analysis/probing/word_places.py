"""Where states hold the order of words (Lin, Tan and Frank 2019, section 3)."""

from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.probing.linear import by_text, standardised
from bertwright.analysis.texts import lacks_halves
from bertwright.analysis.word_states import SITES, WordStates, word_states
from bertwright.significance import halves, of_difference, of_ratio

Floats = NDArray[np.float64]

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""Of the ridge, of which the one is taken that does best within what is learned from."""


class WordPlaces(Analysis):
    """By how many words a linear map of the state of a word misses its place in the text, layer by
    layer: learned from half of the texts, judged on the other. Of long texts the first ``longest``
    words are asked for."""

    kind: Literal["word-places"] = "word-places"
    longest: int = Field(default=40, ge=2)
    number = "B48"
    group = "probing"
    question = "Where do states hold the place of a word?"
    source = "Lin, Tan and Frank 2019"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        return lacks_halves(case.texts) or super().lacks(case)

    def run(self, case: Case) -> Found:
        own = word_states(case)
        places = places_of(own)
        asked = places < self.longest
        learned, judged = (
            np.isin(own.text, half) & asked for half in halves(len(case.texts), case.seed)
        )
        middle = np.abs(places[judged] - places[learned].mean())
        baseline = Baseline("always the mean place", float(middle.mean()))
        errors = [
            by_text(own, judged, self._missed(own, layer, places, learned, judged))
            for layer in range(own.num_layers)
        ]
        findings = [
            Finding.over_texts(
                "words missed by",
                of_ratio(*each, seed=case.seed),
                layer,
                baseline=baseline,
                of_states=True,
            )
            for layer, each in enumerate(errors)
        ]
        more = of_difference(errors[-1], errors[0], seed=case.seed)
        findings.append(Finding.over_texts("missed by, last layer less first", more))
        return Found(findings, {"missed by": np.array([f.value for f in findings[:-1]])})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        first = next(f for f in stored.findings if f["metric"] == "words missed by")
        return [
            concluded(
                "what the blocks read tells where a word stands",
                "nearly always, in the lowest layers of BERT",
                first,
                direction="below",
            ),
            concluded(
                "behind the last layer it is told less well",
                "falls with depth",
                stored.of_all("missed by, last layer less first"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(stored.arrays["missed by"], marker="o")
        axes.axhline(stored.findings[0]["baseline"]["value"], linestyle=":", color="grey")
        axes.set_ylim(0)
        axes.set_xlabel("layer, 0 before the blocks")
        axes.set_ylabel("words by which the place is missed")

    def _missed(
        self,
        own: WordStates,
        layer: int,
        places: Floats,
        learned: NDArray[np.bool_],
        judged: NDArray[np.bool_],
    ) -> Floats:
        from sklearn.linear_model import RidgeCV

        states = standardised(own, layer, learned)
        probe: Any = RidgeCV(STRENGTHS).fit(states[learned], places[learned])
        return np.abs(np.asarray(probe.predict(states[judged]), np.float64) - places[judged])


def places_of(own: WordStates) -> Floats:
    """Which word of its text each one is, from 0."""
    first = np.searchsorted(own.text, own.text, side="left")
    return np.arange(len(own.text), dtype=np.float64) - first
