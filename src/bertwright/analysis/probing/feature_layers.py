"""Which layers make the best features, alone and together (Devlin et al. 2019, table 7)."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.pictures import bars
from bertwright.analysis.probing.linear import by_text, lacks_tags, most_frequent, tags_of, told
from bertwright.analysis.word_states import SITES, word_states
from bertwright.significance import halves, of_difference, of_ratio

Floats = NDArray[np.float64]

FIRST, LAST, LAST_FOUR = "what the blocks read", "last layer", "last four, side by side"

MADE: dict[str, Callable[[Floats], Floats]] = {
    FIRST: lambda states: states[0],
    "last but one": lambda states: states[-2],
    LAST: lambda states: states[-1],
    "sum of the last four": lambda states: states[1:][-4:].sum(0),
    LAST_FOUR: lambda states: np.concatenate(list(states[1:][-4:]), axis=1),
    "sum of all": lambda states: states[1:].sum(0),
}
"""Of states (layers + 1, W, D) the features (W, F), by name."""


class FeatureLayers(Analysis):
    """How often a linear map of features tells the part of speech of a word, of features that are
    the states of one layer or are made of several. It learns from half of the sentences and is
    judged on the other. ``regularisation`` is C of the logistic regression."""

    kind: Literal["feature-layers"] = "feature-layers"
    regularisation: float = Field(default=1.0, gt=0)
    number = "B37"
    group = "probing"
    question = "Which layers make the best features?"
    source = "Devlin et al. 2019"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        return lacks_tags(case) or super().lacks(case)

    def run(self, case: Case) -> Found:
        own, tags = word_states(case), tags_of(case)
        learned, judged = (np.isin(own.text, half) for half in halves(len(case.texts), case.seed))
        frequent = most_frequent(tags[learned])
        always = Baseline(f"always {frequent}", float((tags[judged] == frequent).mean()))
        states = np.asarray(own.states, np.float64)
        sums = {
            name: by_text(own, judged, self._right(made(states), tags, learned, judged))
            for name, made in MADE.items()
        }
        findings = [
            Finding.over_texts(name, of_ratio(*each, seed=case.seed), baseline=always)
            for name, each in sums.items()
        ]
        for better, worse in ((LAST, FIRST), (LAST_FOUR, LAST)):
            lead = of_difference(sums[better], sums[worse], seed=case.seed)
            findings.append(Finding.over_texts(f"{better}, ahead of {worse}", lead))
        return Found(findings, {"right": np.array([each[0] for each in sums.values()])})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "the last layer is a better feature than what the blocks read",
                "94.9 against 91.0 points of F1 on names",
                stored.of_all(f"{LAST}, ahead of {FIRST}"),
                0.0,
                "alike",
            ),
            concluded(
                "the last four side by side are better than the last",
                "96.1 against 94.9 points of F1 on names",
                stored.of_all(f"{LAST_FOUR}, ahead of {LAST}"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        found = [stored.of_all(name) for name in MADE]
        bars(figure.subplots(), found, "words whose part of speech is told")

    def _right(
        self,
        features: Floats,
        tags: NDArray[np.str_],
        learned: NDArray[np.bool_],
        judged: NDArray[np.bool_],
    ) -> Floats:
        mean, deviation = features[learned].mean(0), features[learned].std(0)
        scaled = (features - mean) / np.maximum(deviation, 1e-8)
        said = told(scaled[learned], tags[learned], scaled[judged], self.regularisation)
        return np.asarray(said == tags[judged], np.float64)
