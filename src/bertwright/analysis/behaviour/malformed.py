"""What a fine-tuned model says of texts that are none any more (Sankar et al. 2019; Pham et al.
2021): words in other orders, or left out."""

import re
from collections.abc import Callable
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.classes import (
    Words,
    classified,
    lacks_classes,
    likeliest,
    parts_of,
)
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.randomness import key
from bertwright.significance import of_ratio

Perturbation = Callable[[Words, np.random.Generator], Words]

_SAID = """a an the of to in on at by for with from as is are was were be been am do does did has
have
had and or but if that this these those it its he she they we you i not no will would can could may
might shall should"""

FUNCTION_WORD = re.compile(rf"(?<!\w)({'|'.join(_SAID.split())})(?!\w)", re.IGNORECASE)


class MalformedInput(Analysis):
    """The share of texts whose class stays as it was where their words are shuffled, wholly or in
    twos or threes that stay together, where two neighbours change places, where words come from the
    end, where function words are left out; and how much less sure the model is of that class. What
    is drawn is drawn ``draws`` times. Spaces set words apart; a pair of texts stays two."""

    kind: Literal["malformed-input"] = "malformed-input"
    draws: int = Field(default=5, ge=1)
    number = "B31"
    group = "behaviour"
    question = "Does a fine-tuned model mind that a text is none any more?"
    source = "Pham et al. 2021"

    def lacks(self, case: Case) -> str | None:
        if (lacking := lacks_classes(case)) is not None:
            return lacking
        if any(len(part) > 1 for text in case.texts for part in parts_of(text)):
            return None
        return "no text has two words with a space between"

    def run(self, case: Case) -> Found:
        whole = [parts_of(text) for text in case.texts]
        before = classified(case.subject, whole)
        classes = likeliest(before)
        _, counts = np.unique(classes, return_counts=True)
        alike = float(((counts / len(classes)) ** 2).sum())
        chance = Baseline("two texts of one class, or half of them", max(alike, 0.5))
        findings: list[Finding] = []
        stays: dict[str, NDArray[np.float64]] = {}
        for name, perturbation in PERTURBATIONS.items():
            same, less = np.zeros((2, self.draws, len(whole)))
            for draw in range(self.draws):
                generator = np.random.default_rng(key(case.seed, f"{name} {draw}"))
                changed = [[perturbation(part, generator) for part in parts] for parts in whole]
                after = classified(case.subject, changed)
                for n, (old, new, label) in enumerate(zip(before, after, classes, strict=True)):
                    same[draw, n] = max(new, key=new.__getitem__) == label
                    less[draw, n] = old[label] - new[label]
            stays[name] = same.mean(0)
            share = of_ratio(stays[name], seed=case.seed)
            findings.append(Finding.over_texts(f"class stays, {name}", share, baseline=chance))
            fall = of_ratio(less.mean(0), seed=case.seed)
            findings.append(Finding.over_texts(f"less sure, {name}", fall))
        return Found(findings, stays)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "with all words shuffled most texts keep their class",
                "75 % to 90 % of what models of GLUE had right",
                stored.of_all("class stays, words shuffled"),
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        own = [f for f in stored.findings if f["metric"].startswith("class stays")]
        names = [found["metric"].removeprefix("class stays, ") for found in own]
        axes.barh(names, [found["value"] for found in own])
        axes.axvline(own[0]["baseline"]["value"], linestyle=":")
        axes.set_xlabel("share of texts that keep their class")


def shuffled(size: int) -> Perturbation:
    """Runs of so many words in an order that is drawn."""

    def perturb(words: Words, generator: np.random.Generator) -> Words:
        runs = [words[n : n + size] for n in range(0, len(words), size)]
        return [word for n in generator.permutation(len(runs)) for word in runs[n]]

    return perturb


def swapped(words: Words, generator: np.random.Generator) -> Words:
    """Two neighbours in each other's place."""
    if len(words) < 2:
        return words
    at = int(generator.integers(len(words) - 1))
    return [*words[:at], words[at + 1], words[at], *words[at + 2 :]]


def reversed_words(words: Words, generator: np.random.Generator) -> Words:
    """From the end."""
    return words[::-1]


def without_function_words(words: Words, generator: np.random.Generator) -> Words:
    """Those that say something by themselves, with all marks; all where there are none."""
    return [left for word in words if (left := FUNCTION_WORD.sub("", word))] or words


PERTURBATIONS: dict[str, Perturbation] = {
    "words shuffled": shuffled(1),
    "twos shuffled": shuffled(2),
    "threes shuffled": shuffled(3),
    "two neighbours swapped": swapped,
    "reversed": reversed_words,
    "without function words": without_function_words,
}
