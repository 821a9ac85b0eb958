"""How alike states are: of random words, of one word in its contexts, of a word and its sentence
(Ethayarajh 2019)."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.word_states import SITES, WordStates, word_states
from bertwright.significance import Interval, of_difference, of_means, of_ratio

PARTNERS = 5
"""Random words from other texts that each word is compared with."""

MOST_PAIRS = 1000
"""Of occurrences of one word."""

MOST_OCCURRENCES = 200
"""Of one word, whose directions are looked for."""

METRICS = ("random words", "one word", "word and sentence")

LARGEST = 3
"""Dimensions of which a few can make all states alike, as GPT-2's do."""

SPREAD = "first direction of one word"
"""The share of the spread of a word's occurrences, less that of as many random words."""

FALL = "a word and itself, less random words, last layer less first"


class Contextuality(Analysis):
    """Mean cosines by layer, between random words of different texts (anisotropy), between the
    occurrences of a word in different contexts (self-similarity), and of words with the mean of
    their text; the latter two less the first of their layer. The first also without the three
    largest dimensions. Of the occurrences of a word the share of their spread that lies in one
    direction (maximum explainable variance), less that of as many random words. Words with fewer
    than ``contexts`` occurrences in different texts are left out."""

    kind: Literal["contextuality"] = "contextuality"
    contexts: int = Field(default=5, ge=2)
    number = "B35"
    group = "geometry"
    question = "How alike are the states of random words, and of one word in many contexts?"
    source = "Ethayarajh 2019"
    sites = SITES

    def run(self, case: Case) -> Found:
        own = word_states(case)
        findings: list[Finding] = []
        spread: list[float] = []
        held: dict[str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {
            name: [] for name in METRICS
        }
        for layer in range(own.num_layers):
            states = unit(own.states[layer])
            found = (
                with_random(states, own, case.seed),
                with_itself(states, own, self.contexts, case.seed),
                with_sentence(np.asarray(own.states[layer]), own),
            )
            anisotropy = of_ratio(*found[0], seed=case.seed).value
            even = with_random(unit(without_largest(own.states[layer])), own, case.seed)
            shares = in_one_direction(np.asarray(own.states[layer]), own, self.contexts, case.seed)
            for name, (parts, wholes) in zip(METRICS, found, strict=True):
                held[name].append((parts, wholes))
                if wholes.sum() == 0:
                    continue
                interval = of_ratio(parts, wholes, seed=case.seed)
                if name != METRICS[0]:
                    interval = _less(interval, anisotropy)
                findings.append(Finding.over_texts(f"{name}, layer {layer}", interval))
            spread.append(shares[0].mean() if len(shares[0]) else np.nan)
            beside = {f"{METRICS[0]} without {LARGEST} dimensions": even, SPREAD: shares}
            for name, sums in beside.items():
                if sums[1].sum():
                    interval = of_ratio(*sums, seed=case.seed)
                    findings.append(Finding.over_texts(f"{name}, layer {layer}", interval))
        top, bottom = held[METRICS[0]][-1], held[METRICS[0]][0]
        findings.append(
            Finding.over_texts(
                "random words, last layer less first", of_difference(top, bottom, seed=case.seed)
            )
        )
        words, texts = (
            (of[-1][0] - of[0][0]) / np.maximum(of[0][1], 1.0)
            for of in (held[METRICS[1]], held[METRICS[0]])
        )
        if len(words):
            findings.append(Finding.over_texts(FALL, of_means(words, texts, seed=case.seed)))
        arrays = {
            name: np.array([p.sum() / w.sum() if w.sum() else np.nan for p, w in of])
            for name, of in held.items()
        }
        return Found(findings, arrays | {SPREAD: np.array(spread)})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        found = [
            concluded(
                "random words are more alike in the last layer than before the first",
                "cosines of 0.11 before and 0.48 behind the blocks of BERT-base",
                stored.of_all("random words, last layer less first"),
                0.0,
                "alike",
            )
        ]
        if any(each["metric"] == FALL for each in stored.findings):
            found.append(
                concluded(
                    "a word is less like itself in other contexts behind the blocks than before",
                    "falls from layer to layer in BERT-base",
                    stored.of_all(FALL),
                    0.0,
                    "before the blocks",
                    "below",
                )
            )
        return found

    def draw(self, stored: Stored, figure: Figure) -> None:
        cosines, spread = figure.subplots(2, sharex=True)
        for name in METRICS:
            less = 0 if name == METRICS[0] else stored.arrays[METRICS[0]]
            cosines.plot(stored.arrays[name] - less, marker="o", label=name)
        cosines.set_ylabel("cosine; of one word and of\nsentences less random words'")
        cosines.legend()
        spread.plot(stored.arrays[SPREAD], marker="o")
        spread.set_xlabel("layer")
        spread.set_ylabel("share of spread in one direction,\nless random words'")


def unit(states: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """States (W, D) of length 1."""
    own = np.asarray(states, np.float64)
    return own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)


Sums = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Of every unit that is drawn a sum of cosines, and how many there are."""


def with_random(states: NDArray[np.float64], own: WordStates, seed: int) -> Sums:
    """By text: cosines (T,) of its words with words of other texts."""
    generator = np.random.default_rng(seed)
    number = int(own.text.max()) + 1
    parts, wholes = np.zeros(number), np.zeros(number)
    for _ in range(PARTNERS):
        partner = generator.integers(0, len(states), len(states))
        other = own.text[partner] != own.text
        cosines = (states * states[partner]).sum(1)
        np.add.at(parts, own.text[other], cosines[other])
        np.add.at(wholes, own.text[other], 1.0)
    return parts, wholes


def with_itself(states: NDArray[np.float64], own: WordStates, contexts: int, seed: int) -> Sums:
    """By word: the mean cosine of its occurrences in different texts."""
    generator = np.random.default_rng(seed)
    means: list[float] = []
    for where in _occurrences(own, contexts):
        first, second = np.triu_indices(len(where), 1)
        apart = own.text[where[first]] != own.text[where[second]]
        first, second = first[apart], second[apart]
        if len(first) > MOST_PAIRS:
            some = generator.choice(len(first), MOST_PAIRS, replace=False)
            first, second = first[some], second[some]
        means.append(float((states[where[first]] * states[where[second]]).sum(1).mean()))
    return np.array(means), np.ones(len(means))


def in_one_direction(
    states: NDArray[np.floating[Any]], own: WordStates, contexts: int, seed: int
) -> Sums:
    """By word: the share of the spread of its occurrences about their mean that lies in the first
    direction, less the share of as many random words: few states lie in few directions anyway."""
    generator = np.random.default_rng(seed)
    shares: list[float] = []
    for where in _occurrences(own, contexts):
        if len(where) > MOST_OCCURRENCES:
            where = generator.choice(where, MOST_OCCURRENCES, replace=False)
        others = generator.choice(len(states), len(where), replace=False)
        shares.append(_first_share(states[where]) - _first_share(states[others]))
    return np.array(shares), np.ones(len(shares))


def _first_share(states: NDArray[np.floating[Any]]) -> float:
    centred = np.asarray(states, np.float64) - states.mean(0, dtype=np.float64)
    spread = (centred**2).sum()
    # What does not differ at all lies in one direction as well as in any.
    return float(np.linalg.norm(centred, 2) ** 2 / spread) if spread > 1e-12 else 1.0


def without_largest(states: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """States (W, D) with 0 in the dimensions that are largest on average."""
    own = np.asarray(states, np.float64).copy()
    own[:, np.argsort(-(own**2).mean(0))[:LARGEST]] = 0.0
    return own


def _occurrences(own: WordStates, contexts: int) -> Iterator[NDArray[np.int64]]:
    """Where each word stands that has so many texts."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(own.words):
        places.setdefault(word.lower(), []).append(place)
    for occurrences in places.values():
        where = np.array(occurrences)
        if len(set(own.text[where])) >= contexts:
            yield where


def with_sentence(states: NDArray[np.float32], own: WordStates) -> Sums:
    """By text: cosines of its words with their mean."""
    number = int(own.text.max()) + 1
    parts, wholes = np.zeros(number), np.zeros(number)
    for text in range(number):
        inside = states[own.text == text].astype(np.float64)
        parts[text] = (unit(inside) @ unit(inside.mean(0, keepdims=True)).T).sum()
        wholes[text] = len(inside)
    return parts, wholes


def _less(interval: Interval, amount: float) -> Interval:
    return Interval(
        interval.value - amount, interval.low - amount, interval.high - amount, interval.num_units
    )
