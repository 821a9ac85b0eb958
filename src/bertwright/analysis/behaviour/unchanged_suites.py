"""Suites of texts that are changed in what should not matter to any class."""

from collections.abc import Callable, Sequence

import numpy as np

from bertwright.analysis.behaviour.classes import Words
from bertwright.analysis.behaviour.exchanges import exchanges
from bertwright.analysis.behaviour.suite import Item, Suite, text_of
from bertwright.analysis.behaviour.word_kinds import NAMES, names_in
from bertwright.analysis.texts import ReadText
from bertwright.randomness import key

SHORTEST = 4
"""Letters of a word in which two are swapped."""

SWAPPED = "two letters swapped"

Parts = Sequence[Words]


def unchanged_suites(
    texts: Sequence[ReadText], whole: Sequence[Parts], most: int, seed: int
) -> list[Suite]:
    """Of up to so many texts; those of which nothing can be changed so are left out."""
    made = {
        (SWAPPED, "spelling"): _changed(whole, letters_swapped, most, seed),
        ("a full stop more or less", "spelling"): _changed(whole, full_stop, most, seed),
        ("another name", "names"): [
            (whole[own.text], own.applied(whole[own.text])[0])
            for own in exchanges(texts, NAMES, names_in, 1, seed)[:most]
        ],
    }
    return [
        Suite(
            name=name,
            capability=capability,
            form="invariance",
            items=tuple(Item(text=text_of(new), before=text_of(old)) for old, new in pairs),
        )
        for (name, capability), pairs in made.items()
        if pairs
    ]


def letters_swapped(parts: Parts, generator: np.random.Generator) -> Parts:
    """Two neighbouring letters inside a word that is drawn in each other's place; the same text
    where none can be."""
    can = [
        (number, at, letter)
        for number, part in enumerate(parts)
        for at, word in enumerate(part)
        if len(word) >= SHORTEST and word.isalpha()
        for letter in range(1, len(word) - 2)
        if word[letter] != word[letter + 1]
    ]
    if not can:
        return parts
    number, at, letter = can[generator.integers(len(can))]
    word = parts[number][at]
    swapped = f"{word[:letter]}{word[letter + 1]}{word[letter]}{word[letter + 2 :]}"
    own = [*parts[number][:at], swapped, *parts[number][at + 1 :]]
    return [*parts[:number], own, *parts[number + 1 :]]


def full_stop(parts: Parts, generator: np.random.Generator) -> Parts:
    """A full stop at the end, or none where there was one."""
    *before, (*own, end) = parts
    if not end.endswith("."):
        return [*before, [*own, end, "."]]
    return [*before, own if end == "." else [*own, end[:-1]]]


def _changed(
    whole: Sequence[Parts],
    change: Callable[[Parts, np.random.Generator], Parts],
    most: int,
    seed: int,
) -> list[tuple[Parts, Parts]]:
    pairs: list[tuple[Parts, Parts]] = []
    for number, parts in enumerate(whole):
        generator = np.random.default_rng(key(seed, change.__name__, number))
        new = change(parts, generator)
        if new != parts and any(new):
            pairs.append((parts, new))
    return pairs[:most]
