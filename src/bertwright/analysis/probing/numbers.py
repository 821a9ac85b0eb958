"""What states tell of the value of a number (Wallace, Wang et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import SITES, word_states
from bertwright.randomness import generator, key
from bertwright.significance import of_difference, of_means, of_ratio
from bertwright.tasks.formats.examples import TaggedWords

Floats = NDArray[np.float64]
Sums = tuple[Floats, Floats]

STRENGTHS = np.logspace(0, 5, 11)
"""Among which the regression chooses how strongly it is held back."""


WITHIN, BEYOND = "value, interpolated", "value, extrapolated"


class Numbers(Analysis):
    """Numbers below ``below`` stand in one sentence, "there were 27 of them", or two of them in
    another, "27 and 54". A linear map of their states is to tell the value, or the sum. It learns
    from half of them, drawn (interpolated), or from the lower half alone (extrapolated), and is
    judged on the rest: the share of the squared error that is left of that of always saying the
    mean. Beside it the same of the model with weights as they are drawn."""

    kind: Literal["numbers"] = "numbers"
    below: int = Field(default=1000, ge=20)
    most: int = Field(default=300, ge=20)
    number = "B30"
    group = "probing"
    question = "Do the states of a number tell how large it is?"
    source = "Wallace et al. 2019"
    sites = SITES

    def run(self, case: Case) -> Found:
        untrained = replace(case, subject=case.subject.untrained(case.seed))
        findings: list[Finding] = []
        left: dict[str, Floats] = {}
        last: dict[str, tuple[Sums, Sums]] = {}
        for question in self.questions(case.seed):
            own, drawn = (question.errors(of) for of in (case, untrained))
            for layer, (errors, others) in enumerate(zip(own, drawn, strict=True)):
                baseline = Baseline("untrained", float(others[0].sum() / others[1].sum()))
                found = of_ratio(*errors, seed=case.seed)
                findings.append(
                    Finding.over_texts(
                        question.name, found, layer, baseline=baseline, of_states=True
                    )
                )
            left[question.name] = np.array([of[0].sum() / of[1].sum() for of in own])
            last[question.name] = own[-1], drawn[-1]
        errors, others = last[WITHIN]
        beyond = of_means(
            *(e / variance for e, variance in (last[name][0] for name in (BEYOND, WITHIN))),
            seed=case.seed,
        )
        findings += [
            Finding.over_texts(
                "untrained less trained, last layer",
                of_difference(others, errors, seed=case.seed),
            ),
            Finding.over_texts("extrapolated less interpolated, last layer", beyond),
        ]
        return Found(findings, left)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "training lets states tell more of the value of a number",
                "all vectors of words that were looked at hold it, random ones do not",
                stored.of_all("untrained less trained, last layer"),
                0.0,
                "alike",
            ),
            concluded(
                "of numbers above those that it learned from a probe tells less",
                "probes do not extrapolate",
                stored.of_all("extrapolated less interpolated, last layer"),
                0.0,
                "as much",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        for name, own in stored.arrays.items():
            axes.plot(own, marker="o", label=name)
        axes.axhline(1, linestyle=":", color="grey")
        axes.set_xlabel("layer, 0 before the blocks")
        axes.set_ylabel("share of the squared error that is left")
        axes.legend()

    def questions(self, seed: int) -> "list[Question]":
        """What is asked, of numbers that are drawn."""
        drawn = generator(key(seed, "numbers"))
        first, second = (drawn.permutation(self.below)[: self.most] for _ in range(2))
        alone = [("there", "were", str(number), "of", "them", ".") for number in first]
        pairs = [
            (str(one), "and", str(other), ".") for one, other in zip(first, second, strict=True)
        ]
        half = np.arange(len(first)) < len(first) // 2
        return [
            Question(WITHIN, alone, (2,), first, half),
            Question(BEYOND, alone, (2,), first, first < np.median(first)),
            Question("sum, interpolated", pairs, (0, 2), first + second, half),
        ]


@dataclass(frozen=True)
class Question:
    """What is to be told, (N,), of the words at these places of N sentences, and by which of them
    one learns, (N,) bool."""

    name: str
    sentences: Sequence[tuple[str, ...]]
    places: tuple[int, ...]
    values: NDArray[np.int64]
    learned: NDArray[np.bool_]

    def errors(self, case: Case) -> list[Sums]:
        """By layer the squared errors in what is judged, and for each the variance of all."""
        texts = read_texts(case.subject, [TaggedWords(own, own) for own in self.sentences])
        read = word_states(replace(case, texts=texts, cache=None))
        begins = np.cumsum([0, *(len(text.words) for text in texts)])[:-1]
        where = begins[:, None] + np.array(self.places)
        states = read.states[:, where].reshape(read.num_layers, len(texts), -1)
        return [self.left(np.asarray(own, np.float64)) for own in states]

    def left(self, states: Floats) -> Sums:
        """The same of states (N, D)."""
        from sklearn.linear_model import RidgeCV

        learned, judged = self.learned, ~self.learned
        mean, deviation = states[learned].mean(0), states[learned].std(0)
        scaled = (states - mean) / np.maximum(deviation, 1e-8)
        probe: Any = RidgeCV(STRENGTHS).fit(scaled[learned], self.values[learned])
        wanted = self.values[judged]
        errors = (np.asarray(probe.predict(scaled[judged]), np.float64) - wanted) ** 2
        return errors, np.full(len(wanted), self.values.var())
