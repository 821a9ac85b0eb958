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

LARGEST = 3
"""Dimensions of which a few can make all states alike, as GPT-2's do."""

RANDOM, ITSELF, SENTENCE = "random words", "one word", "word and sentence"
EVEN = f"random words without {LARGEST} dimensions"
SPREAD = "first direction of one word"

Sums = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Of every unit that is drawn a sum of what is measured, and how many there are."""

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
        held: dict[str, list[Sums]] = {}
        for layer in range(own.num_layers):
            found = self._of_layer(np.asarray(own.states[layer]), own, case.seed)
            anisotropy = of_ratio(*found[RANDOM], seed=case.seed).value
            for name, sums in found.items():
                held.setdefault(name, []).append(sums)
                if sums[1].sum() == 0:
                    continue
                interval = of_ratio(*sums, seed=case.seed)
                if name in (ITSELF, SENTENCE):
                    interval = _less(interval, anisotropy)
                findings.append(Finding.over_texts(f"{name}, layer {layer}", interval))
        top, bottom = held[RANDOM][-1], held[RANDOM][0]
        risen = of_difference(top, bottom, seed=case.seed)
        findings.append(Finding.over_texts(f"{RANDOM}, last layer less first", risen))
        words, texts = (
            (of[-1][0] - of[0][0]) / np.maximum(of[0][1], 1.0)
            for of in (held[ITSELF], held[RANDOM])
        )
        if len(words):
            findings.append(Finding.over_texts(FALL, of_means(words, texts, seed=case.seed)))
        arrays = {
            name: np.array([p.sum() / w.sum() if w.sum() else np.nan for p, w in of])
            for name, of in held.items()
        }
        return Found(findings, arrays)

    def _of_layer(self, states: NDArray[np.float32], own: WordStates, seed: int) -> dict[str, Sums]:
        units = unit(states)
        return {
            RANDOM: with_random(units, own, seed),
            ITSELF: with_itself(units, own, self.contexts, seed),
            SENTENCE: with_sentence(states, own),
            EVEN: with_random(unit(without_largest(states)), own, seed),
            SPREAD: in_one_direction(states, own, self.contexts, seed),
        }

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        found = [
            concluded(
                "random words are more alike in the last layer than before the first",
                "cosines of 0.11 before and 0.48 behind the blocks of BERT-base",
                stored.of_all(f"{RANDOM}, last layer less first"),
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
        for name in (RANDOM, ITSELF, SENTENCE):
            less = 0 if name == RANDOM else stored.arrays[RANDOM]
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
