"""Substitution of words in texts."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.behaviour.classification import (
    PartWords,
    class_probabilities,
    most_likely_classes,
)
from bertwright.analysis.behaviour.word_lists import WordClasses
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.rng import stream_key


@dataclass(frozen=True)
class WordSubstitution:
    """A word of a text, in lower case, and its replacements everywhere in that text.

    ``rewrite_functions`` map an occurrence to its replacement.
    """

    text_index: int
    word: str
    replacements: tuple[str, ...]
    rewrite_functions: tuple[Callable[[str], str], ...]

    def with_case_variants(self) -> "WordSubstitution":
        """Return the substitution of the word by itself in lower and upper case."""
        return replace(
            self,
            replacements=("small letters", "capitals"),
            rewrite_functions=(str.lower, str.upper),
        )

    def apply(self, parts: Sequence[PartWords]) -> list[list[PartWords]]:
        """Return the parts of the text with each replacement; attached punctuation stays."""
        word = re.compile(rf"(?<!\w){re.escape(self.word)}(?!\w)", re.IGNORECASE)

        def rewrite(text: str, function: Callable[[str], str]) -> str:
            return word.sub(lambda match: function(match[0]), text)

        return [
            [[rewrite(text, function) for text in part] for part in parts]
            for function in self.rewrite_functions
        ]


def find_substitutions(
    texts: Sequence[AnalysedText],
    word_classes: WordClasses,
    candidate_words: Callable[[AnalysedText], Sequence[str]],
    max_replacements: int,
    seed: int,
) -> list[WordSubstitution]:
    """Find the first word of each text that is in a word class, with random others of its class.

    At most ``max_replacements``; texts without such a word are skipped.
    """
    class_of = {word.lower(): name for name, words in word_classes.items() for word in words}
    substitutions: list[WordSubstitution] = []
    for number, text in enumerate(texts):
        target = next((w.lower() for w in candidate_words(text) if w.lower() in class_of), None)
        if target is None:
            continue
        others = [word for word in word_classes[class_of[target]] if word.lower() != target]
        order = np.random.default_rng(stream_key(seed, "exchange", target, number)).permutation(
            len(others)
        )
        replacements = tuple(others[n] for n in order[:max_replacements])
        if replacements:
            functions = tuple(partial(match_case, new) for new in replacements)
            substitutions.append(WordSubstitution(number, target, replacements, functions))
    return substitutions


def match_case(new: str, old: str) -> str:
    """Write a word in the case of another one: lower, upper or capitalised."""
    if old.islower():
        return new.lower()
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[:1].upper() + new[1:]


def prediction_changes(
    model: AnalysedModel,
    text_parts: Sequence[Sequence[PartWords]],
    substitutions: Sequence[WordSubstitution],
) -> list[NDArray[np.bool_]]:
    """Return which replacements of each substitution change the predicted class."""
    before = most_likely_classes(
        class_probabilities(model, [text_parts[item.text_index] for item in substitutions])
    )
    after = most_likely_classes(
        class_probabilities(
            model, [t for item in substitutions for t in item.apply(text_parts[item.text_index])]
        )
    )
    ends = np.cumsum([len(item.rewrite_functions) for item in substitutions])[:-1]
    by_substitution = np.split(np.array(after), ends) if substitutions else []
    return [classes != label for classes, label in zip(by_substitution, before, strict=True)]
