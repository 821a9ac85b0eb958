"""What a model knows of how texts follow each other, and how sure it is of its guesses (Lan et al.
2020, table 5)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asking
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.pictures import bars
from bertwright.analysis.texts import read_texts
from bertwright.significance import halves, of_difference, of_ratio
from bertwright.tasks.formats.examples import Example

Floats = NDArray[np.float64]

FOLLOWS, ORDER = "follows, or is of another text", "stands before, or behind"

LEAST_WORDS = 4
"""Of a half."""


class PairQuestions(Analysis):
    """Each text is cut in the middle. Whether the second half follows the first or is that of
    another text, and whether the two stand in their order or are exchanged, is told by a linear map
    of the first state of the pair and of the mean of its states, in the last layer: learned from
    half of the texts, judged on the other. Words alone tell something of it: it is held against the
    same of the model as it is drawn. Beside it how often hidden pieces are named right, and by how
    much the model is surer of them than that."""

    kind: Literal["pair-questions"] = "pair-questions"
    regularisation: float = Field(default=0.1, gt=0)
    number = "B46"
    group = "behaviour"
    question = "What does it know of the order of texts that it was not asked for?"
    source = "Lan et al. 2020"

    def lacks(self, case: Case) -> str | None:
        if len(_halved(case)) < 8:
            return f"it needs eight texts of {2 * LEAST_WORDS} words: to learn from, and to judge"
        return None

    def run(self, case: Case) -> Found:
        parts = _halved(case)
        learned, judged = halves(len(parts), case.seed)
        # Within either half: what was learned to follow must not be what is judged not to.
        others = np.arange(len(parts))
        for half in (learned, judged):
            others[half] = np.roll(half, 1)
        wrong = {
            FOLLOWS: [(first, parts[n][1]) for (first, _), n in zip(parts, others, strict=True)],
            ORDER: [(second, first) for first, second in parts],
        }
        untrained = replace(case, subject=case.subject.untrained(case.seed))
        scores, drawn = (
            {
                name: self._told(vectors(of, parts), vectors(of, pairs), learned, judged)
                for name, pairs in wrong.items()
            }
            for of in (case, untrained)
        )
        ones, chance, findings = np.ones(len(judged)), Baseline("chance", 0.5), list[Finding]()
        for name, own in scores.items():
            for metric, each in ((name, own), (f"{name}, untrained", drawn[name])):
                share = of_ratio(each, seed=case.seed)
                findings.append(Finding.over_texts(metric, share, baseline=chance))
            less = of_difference((own, ones), (drawn[name], ones), seed=case.seed)
            findings.append(Finding.over_texts(f"{name}, less untrained", less))
        lead = of_difference((scores[FOLLOWS], ones), (scores[ORDER], ones), seed=case.seed)
        findings.append(Finding.over_texts("what follows, less what order", lead))
        if case.subject.text_model.names_pieces:
            findings += _guesses(case)
        return Found(findings, scores)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "training lets states tell whether a text follows another",
                "90.5 % where that was asked, 52 % to 79 % where it was not",
                stored.of_all(f"{FOLLOWS}, less untrained"),
                0.0,
                "alike",
            ),
            concluded(
                "training lets states tell which of two comes first",
                "86.5 % where that was asked, 52 % to 53 % where it was not",
                stored.of_all(f"{ORDER}, less untrained"),
                0.0,
                "alike",
            ),
            concluded(
                "what follows is told better than the order",
                "90.5 against 52.0 % of a model that was asked what follows",
                stored.of_all("what follows, less what order"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        names = (f"{name}{of}" for name in (FOLLOWS, ORDER) for of in ("", ", untrained"))
        found = [stored.of_all(name) for name in names]
        bars(figure.subplots(), found, "pairs told right")

    def _told(
        self,
        right: Floats,
        wrong: Floats,
        learned: NDArray[np.int64],
        judged: NDArray[np.int64],
    ) -> Floats:
        """Of each text that judges, the share of its two pairs that are told."""
        from sklearn.linear_model import LogisticRegression

        both = np.concatenate((right[learned], wrong[learned]))
        mean, deviation = both.mean(0), np.maximum(both.std(0), 1e-8)
        probe: Any = LogisticRegression(C=self.regularisation, max_iter=500)
        probe.fit((both - mean) / deviation, np.repeat([1, 0], len(learned)))
        said = [probe.predict((own[judged] - mean) / deviation) for own in (right, wrong)]
        return (np.asarray(said[0] == 1, np.float64) + np.asarray(said[1] == 0, np.float64)) / 2


def vectors(case: Case, pairs: Sequence[tuple[str, str]]) -> Floats:
    """The first state of each pair in the last layer, and the mean of its states: (N, 2 D)."""
    texts = read_texts(case.subject, [Example(first, second) for first, second in pairs])
    own = replace(case, texts=texts, cache=None)
    heard = _Pairs(own)
    listen(own.subject, own.texts, [heard])
    return np.stack(heard.vectors)


class _Pairs:
    """Makes a vector of each pair."""

    sites = ("output",)

    def __init__(self, case: Case) -> None:
        self.vectors: list[Floats] = [np.empty(0)] * len(case.texts)

    def hear(self, heard: Heard) -> None:
        """Take those of a batch."""
        for row, number in enumerate(heard.numbers):
            states = heard.values["output"][row, : len(heard.texts[row])].double()
            self.vectors[number] = torch.cat((states[0], states.mean(0))).cpu().numpy()

    def found(self) -> Found:
        """Nothing but the vectors."""
        return Found([])


def _halved(case: Case) -> list[tuple[str, str]]:
    """The halves of the texts, without the marks that they end with: by a full stop anything knows
    which is the second."""
    texts = [_open(text.words) for text in case.texts]
    parts = [
        (_open(words[: len(words) // 2]), words[len(words) // 2 :])
        for words in texts
        if len(words) >= 2 * LEAST_WORDS
    ]
    return [(" ".join(first), " ".join(second)) for first, second in parts if first]


def _open(words: Sequence[str]) -> list[str]:
    return re.sub(r"\W+$", "", " ".join(words)).split()


def _guesses(case: Case) -> list[Finding]:
    """How often hidden pieces are named right, and how much surer the model is."""
    asking = Asking(case.subject, case.texts, case.seed)
    asked = asking.asked()
    found = of_ratio(asked.right, asked.total, seed=case.seed)
    own = (asking.sure(), asked.total), (asked.right, asked.total)
    sure = of_difference(*own, seed=case.seed)
    return [
        Finding.over_texts("hidden pieces named right", found),
        Finding.over_texts("surer than right", sure),
    ]
