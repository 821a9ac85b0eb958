"""Words of texts and what can stand in their place."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.behaviour.classes import Words, classified, likeliest
from bertwright.analysis.behaviour.word_kinds import Kinds
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.randomness import key


@dataclass(frozen=True)
class Exchange:
    """A word of the text of that number, in small letters, and what it becomes wherever it stands:
    by name, and as what writes it in the place of a word."""

    text: int
    word: str
    others: tuple[str, ...]
    writers: tuple[Callable[[str], str], ...]

    def as_letters(self) -> "Exchange":
        """The same word in small letters and in capitals."""
        return replace(self, others=("small letters", "capitals"), writers=(str.lower, str.upper))

    def applied(self, parts: Sequence[Words]) -> list[list[Words]]:
        """The parts of the text with each of them; marks beside the word stay."""
        word = re.compile(rf"(?<!\w){re.escape(self.word)}(?!\w)", re.IGNORECASE)

        def in_place(own: str, write: Callable[[str], str]) -> str:
            return word.sub(lambda old: write(old[0]), own)

        return [
            [[in_place(own, write) for own in part] for part in parts] for write in self.writers
        ]


def exchanges(
    texts: Sequence[ReadText],
    kinds: Kinds,
    words_in: Callable[[ReadText], Sequence[str]],
    most: int,
    seed: int,
) -> list[Exchange]:
    """Of every text the first word in it that is of a kind, and up to ``most`` others of this kind,
    drawn; texts without such a word have none."""
    kind_of = {word.lower(): kind for kind, words in kinds.items() for word in words}
    found: list[Exchange] = []
    for number, text in enumerate(texts):
        own = next((w.lower() for w in words_in(text) if w.lower() in kind_of), None)
        if own is None:
            continue
        alike = [word for word in kinds[kind_of[own]] if word.lower() != own]
        order = np.random.default_rng(key(seed, "exchange", own, number)).permutation(len(alike))
        drawn = tuple(alike[n] for n in order[:most])
        if drawn:
            writers = tuple(partial(like, new) for new in drawn)
            found.append(Exchange(number, own, drawn, writers))
    return found


def like(new: str, old: str) -> str:
    """A word in the letters of another: small ones, capitals, or a capital in front."""
    if old.islower():
        return new.lower()
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[:1].upper() + new[1:]


def changes(
    subject: Subject, whole: Sequence[Sequence[Words]], own: Sequence[Exchange]
) -> list[NDArray[np.bool_]]:
    """Of every exchange which of its words make the model name another class."""
    before = likeliest(classified(subject, [whole[each.text] for each in own]))
    after = likeliest(classified(subject, [t for e in own for t in e.applied(whole[e.text])]))
    ends = np.cumsum([len(each.writers) for each in own])[:-1]
    parts = np.split(np.array(after), ends) if own else []
    return [part != label for part, label in zip(parts, before, strict=True)]
