"""Linear probes for parts of speech, with control tasks (Hewitt and Liang 2019)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.texts import lacks_halves, lacks_trees
from bertwright.analysis.word_states import SITES, WordStates, word_states
from bertwright.randomness import key
from bertwright.significance import halves, of_difference, of_ratio
from bertwright.tasks.formats.treebank import Tree

DRAWS = 5
"""Of control tags: one may be easier to know by heart than another."""


class LinearProbe(Analysis):
    """How often a linear map of the states of a layer tells the part of speech of a word, and how
    often one that is taught to tell a tag that was drawn for each word, whatever its context, in
    the mean over five draws. Both learn from half of the sentences and are judged on the other. The
    difference, selectivity, is what the states add to a probe that knows words by heart.
    ``regularisation`` is C of the logistic regression."""

    kind: Literal["linear-probe"] = "linear-probe"
    regularisation: float = Field(default=1.0, gt=0)
    number = "B22"
    group = "probing"
    question = "Which layer tells parts of speech, and how much of that is the probe's?"
    source = "Hewitt and Liang 2019"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        return lacks_tags(case) or super().lacks(case)

    def run(self, case: Case) -> Found:
        own = word_states(case)
        tags = tags_of(case)
        controls = [control_tags(own.words, tags, case.seed, draw) for draw in range(DRAWS)]
        learned, judged = (np.isin(own.text, half) for half in halves(len(case.texts), case.seed))
        majority = most_frequent(tags[learned])
        findings: list[Finding] = []
        scores = np.zeros((own.num_layers, 2))
        for layer in range(own.num_layers):
            states = standardised(own, layer, learned)
            told, *others = (
                self._right(states, target, learned, judged) for target in (tags, *controls)
            )
            right = told, np.mean(others, axis=0)
            sums = [by_text(own, judged, of) for of in right]
            scores[layer] = [of.mean() for of in right]
            always = Baseline(f"always {majority}", float((tags[judged] == majority).mean()))
            accuracy = of_ratio(*sums[0], seed=case.seed)
            findings += [
                Finding.over_texts("accuracy", accuracy, layer, baseline=always, of_states=True),
                Finding.over_texts(
                    "of control", of_ratio(*sums[1], seed=case.seed), layer, of_states=True
                ),
                Finding.over_texts(
                    "selectivity", of_difference(*sums, seed=case.seed), layer, of_states=True
                ),
            ]
        return Found(findings, {"scores": scores})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        by_layer = [f for f in stored.findings if f["metric"] == "selectivity"]
        return [
            concluded(
                f"states tell more than the words do by heart, in layer {own['layer']}",
                "25.5 points for a linear probe of ELMo's first layer",
                own,
                0.0,
                "none",
            )
            for own in (by_layer[0], by_layer[len(by_layer) // 2], by_layer[-1])
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        for number, name in enumerate(("part of speech", "control")):
            axes.plot(stored.arrays["scores"][:, number], marker="o", label=name)
        axes.set_xlabel("layer, 0 before the blocks")
        axes.set_ylabel("accuracy")
        axes.legend()

    def _right(
        self,
        states: NDArray[np.float64],
        target: NDArray[np.str_],
        learned: NDArray[np.bool_],
        judged: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        said = told(states[learned], target[learned], states[judged], self.regularisation)
        return np.asarray(said == target[judged], np.float64)


def told(
    states: NDArray[np.float64],
    target: NDArray[np.str_],
    others: NDArray[np.float64],
    regularisation: float,
) -> NDArray[np.str_]:
    """What a linear map that learned the ``target`` (N,) of states (N, D) says of others (M, D)."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(target)) < 2:
        return np.repeat(target[:1], len(others))
    probe: Any = LogisticRegression(C=regularisation, max_iter=200)
    probe.fit(states, target)
    return np.asarray(probe.predict(others), np.str_)


def lacks_tags(case: Case) -> str | None:
    """Why no probe can learn parts of speech from half of the texts, in words."""
    if (lacking := lacks_trees(case.texts) or lacks_halves(case.texts)) is not None:
        return lacking
    learned, _ = halves(len(case.texts), case.seed)
    return lacks_kinds(replace(case, texts=[case.texts[n] for n in learned]))


def lacks_kinds(case: Case) -> str | None:
    """Why there is nothing to be told of the words of these trees, in words."""
    if len(np.unique(tags_of(case))) > 1:
        return None
    return "all words that it would learn from are one part of speech: give more sentences"


def control_tags(
    words: Sequence[str], tags: NDArray[np.str_], seed: int, draw: int = 0
) -> NDArray[np.str_]:
    """For every word as it is written a tag of its own, as often as tags are (section 2)."""
    kinds = {word: number for number, word in enumerate(dict.fromkeys(words))}
    generator = np.random.default_rng(key(seed, "control tags", draw))
    drawn = generator.choice(tags, len(kinds))
    return drawn[[kinds[word] for word in words]]


def tags_of(case: Case) -> NDArray[np.str_]:
    """The parts of speech of all words that are read."""
    found: list[str] = []
    for text in case.texts:
        assert isinstance(text.source, Tree)
        found += text.source.tags[: len(text.words)]
    return np.array(found)


def most_frequent(tags: NDArray[np.str_]) -> str:
    """The tag that most words have."""
    names, counts = np.unique(tags, return_counts=True)
    return str(names[counts.argmax()])


def standardised(own: WordStates, layer: int, learned: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The states of a layer (W, D), such that of those that are learned from every number has mean
    0 and deviation 1."""
    states = np.asarray(own.states[layer], np.float64)
    mean, deviation = states[learned].mean(0), states[learned].std(0)
    return (states - mean) / np.maximum(deviation, 1e-8)


def by_text(
    own: WordStates, judged: NDArray[np.bool_], right: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many are right, and how many there are, of each text that judges."""
    _, text = np.unique(own.text[judged], return_inverse=True)
    total = np.bincount(text).astype(np.float64)
    return np.asarray(np.bincount(text, right), np.float64), total
