"""Suites of texts with changes that should not affect any class."""

from collections.abc import Callable, Sequence

import numpy as np

from bertwright.analysis.behaviour.checklist.suite import BehaviouralSuite, SuiteItem, join_parts
from bertwright.analysis.behaviour.classification import PartWords
from bertwright.analysis.behaviour.word_substitution import (
    PROPER_NAMES,
    find_substitutions,
    proper_nouns,
)
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.rng import stream_key

MIN_WORD_LENGTH = 4
"""Minimum length of a word in which two letters are swapped."""

SWAPPED_LETTERS_SUITE = "two letters swapped"

TextParts = Sequence[PartWords]


def invariance_suites(
    texts: Sequence[AnalysedText], text_parts: Sequence[TextParts], max_items: int, seed: int
) -> list[BehaviouralSuite]:
    """Build suites of up to ``max_items`` texts each; texts that cannot be changed are skipped."""
    pairs_by_suite = {
        (SWAPPED_LETTERS_SUITE, "spelling"): _perturbed_pairs(
            text_parts, swap_letters, "letters_swapped", max_items, seed
        ),
        ("a full stop more or less", "spelling"): _perturbed_pairs(
            text_parts, toggle_full_stop, "full_stop", max_items, seed
        ),
        ("another name", "names"): [
            (
                text_parts[substitution.text_index],
                substitution.apply(text_parts[substitution.text_index])[0],
            )
            for substitution in find_substitutions(texts, PROPER_NAMES, proper_nouns, 1, seed)[
                :max_items
            ]
        ],
    }
    return [
        BehaviouralSuite(
            name=name,
            capability=capability,
            form="invariance",
            items=tuple(
                SuiteItem(text=join_parts(new), original_text=join_parts(old)) for old, new in pairs
            ),
        )
        for (name, capability), pairs in pairs_by_suite.items()
        if pairs
    ]


def swap_letters(parts: TextParts, generator: np.random.Generator) -> TextParts:
    """Swap two neighbouring letters inside a random word, if there is one."""
    swaps = [
        (number, index, letter)
        for number, words in enumerate(parts)
        for index, word in enumerate(words)
        if len(word) >= MIN_WORD_LENGTH and word.isalpha()
        for letter in range(1, len(word) - 2)
        if word[letter] != word[letter + 1]
    ]
    if not swaps:
        return parts
    number, index, letter = swaps[generator.integers(len(swaps))]
    word = parts[number][index]
    swapped = f"{word[:letter]}{word[letter + 1]}{word[letter]}{word[letter + 2 :]}"
    part = [*parts[number][:index], swapped, *parts[number][index + 1 :]]
    return [*parts[:number], part, *parts[number + 1 :]]


def toggle_full_stop(parts: TextParts, generator: np.random.Generator) -> TextParts:
    """Add a full stop at the end, or remove it."""
    *others, (*words, last) = parts
    if not last.endswith("."):
        return [*others, [*words, last, "."]]
    return [*others, words if last == "." else [*words, last[:-1]]]


def _perturbed_pairs(
    text_parts: Sequence[TextParts],
    perturbation: Callable[[TextParts, np.random.Generator], TextParts],
    stream: str,
    max_items: int,
    seed: int,
) -> list[tuple[TextParts, TextParts]]:
    pairs: list[tuple[TextParts, TextParts]] = []
    for number, parts in enumerate(text_parts):
        generator = np.random.default_rng(stream_key(seed, stream, number))
        new = perturbation(parts, generator)
        if new != parts and any(new):
            pairs.append((parts, new))
    return pairs[:max_items]
