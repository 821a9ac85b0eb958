"""Predictions of a classifier for malformed texts: words reordered or removed.

Sankar et al. (2019); Pham et al. (2021).
"""

import re
from collections.abc import Callable
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.behaviour.classification import (
    PartWords,
    class_probabilities,
    most_likely_classes,
    split_parts,
)
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_classes
from bertwright.analysis.core.result import (
    AnalysisResult,
    BaselineValue,
    Findings,
)
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray

WordPerturbation = Callable[[PartWords, np.random.Generator], PartWords]

_FUNCTION_WORDS = """a an the of to in on at by for with from as is are was were be been am do does
did has have had and or but if that this these those it its he she they we you i not no will would
can could may might shall should"""

UNCHANGED_PREDICTIONS, CONFIDENCE_DROP = "unchanged predictions, ", "confidence drop, "

FUNCTION_WORD_PATTERN = re.compile(
    rf"(?<!\w)({'|'.join(_FUNCTION_WORDS.split())})(?!\w)", re.IGNORECASE
)


class MalformedInput(Analysis):
    """How many predictions stay the same for malformed texts, and how far confidence drops.

    Words are shuffled, individually or in groups of two or three; two neighbours are swapped; the
    text is reversed; function words are removed. Random changes are repeated ``num_repetitions``
    times. Texts are split into words at spaces; the texts of a pair are changed separately.
    """

    kind: Literal["malformed-input"] = "malformed-input"
    num_repetitions: int = Field(default=5, ge=1)
    survey_id = "B31"
    title = "Does a fine-tuned model notice that its input is no longer a text?"
    source = "Pham et al. 2021"
    requires = (missing_classes,)
    claims = (
        Claim(
            "most texts keep their predicted class when all words are shuffled",
            "75 % to 90 % of the correct predictions of GLUE models",
            f"{UNCHANGED_PREDICTIONS}words shuffled",
            baseline=None,
        ),
    )
    plots = (FindingBars("fraction of unchanged predictions", UNCHANGED_PREDICTIONS),)

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        has_words = any(len(part) > 1 for text in inputs.texts for part in split_parts(text))
        missing = None if has_words else "no text has two words separated by a space"
        return super().not_applicable(inputs) or missing

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        text_parts = [split_parts(text) for text in inputs.texts]
        before = class_probabilities(inputs.model, text_parts)
        classes = most_likely_classes(before)
        _, counts = np.unique(classes, return_counts=True)
        same_class = float(((counts / len(classes)) ** 2).sum())
        chance = BaselineValue("two texts have the same class, or half", max(same_class, 0.5))
        findings = Findings(inputs.seed)
        unchanged: dict[str, FloatArray] = {}
        for name, perturbation in PERTURBATIONS.items():
            is_same, drop = np.zeros((2, self.num_repetitions, len(text_parts)))
            for draw in range(self.num_repetitions):
                generator = np.random.default_rng(stream_key(inputs.seed, f"{name} {draw}"))
                changed = [[perturbation(part, generator) for part in p] for p in text_parts]
                after = class_probabilities(inputs.model, changed)
                for n, (old, new, label) in enumerate(zip(before, after, classes, strict=True)):
                    is_same[draw, n] = max(new, key=new.__getitem__) == label
                    drop[draw, n] = old[label] - new[label]
            unchanged[name] = is_same.mean(0)
            findings.add_ratio(f"{UNCHANGED_PREDICTIONS}{name}", unchanged[name], baseline=chance)
            findings.add_ratio(f"{CONFIDENCE_DROP}{name}", drop.mean(0))
        return AnalysisResult(findings, unchanged)


def shuffle_ngrams(size: int) -> WordPerturbation:
    """Return a perturbation that shuffles groups of ``size`` words."""

    def perturb(words: PartWords, generator: np.random.Generator) -> PartWords:
        runs = [words[n : n + size] for n in range(0, len(words), size)]
        return [word for n in generator.permutation(len(runs)) for word in runs[n]]

    return perturb


def swap_neighbours(words: PartWords, generator: np.random.Generator) -> PartWords:
    """Swap two neighbouring words."""
    if len(words) < 2:
        return words
    index = int(generator.integers(len(words) - 1))
    return [*words[:index], words[index + 1], words[index], *words[index + 2 :]]


def reverse_words(words: PartWords, generator: np.random.Generator) -> PartWords:
    """Reverse the words."""
    return words[::-1]


def remove_function_words(words: PartWords, generator: np.random.Generator) -> PartWords:
    """Remove function words but keep punctuation; a text of only function words is unchanged."""
    return [rest for word in words if (rest := FUNCTION_WORD_PATTERN.sub("", word))] or words


PERTURBATIONS: dict[str, WordPerturbation] = {
    "words shuffled": shuffle_ngrams(1),
    "twos shuffled": shuffle_ngrams(2),
    "threes shuffled": shuffle_ngrams(3),
    "two neighbours swapped": swap_neighbours,
    "reversed": reverse_words,
    "without function words": remove_function_words,
}
