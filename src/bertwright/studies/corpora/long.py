"""Text in which a value must be remembered: keys with their values, a count that says nothing, and
the keys again.

What a key stands for is drawn anew in every document, so that behind the count it is known from
nothing but what stands before. Between the two mentions of a key lie about as many words as one of
the ``distances``.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from bertwright.randomness import generator, key
from bertwright.studies.corpora.corpus import Corpus, Written, write_lines
from bertwright.studies.corpora.lexicon import new_words

KEYS, VALUES, COUNTED = 8, 8, 8
"""How many different words there are: every key has so many values that are its own, so that small
models learn in little time what is asked; the count begins anew behind its last."""

PAIRS = 4
"""Keys of a document."""

QUESTIONS = 200
"""Of a distance."""


class Long(Corpus):
    """So many documents at all ``distances`` alike, in words from a key to the same key; all keys
    stand ``times`` times behind the count. Once is for models that read both ways: they find an
    answer beside the question where it stands there again."""

    kind: Literal["long"] = "long"
    documents: int = Field(default=20_000, ge=100)
    distances: tuple[int, ...] = Field(default=(32, 64, 128), min_length=1)
    times: int = Field(default=3, ge=1)
    seed: int = 0

    @field_validator("distances")
    @classmethod
    def _with_room(cls, distances: tuple[int, ...]) -> tuple[int, ...]:
        if min(distances) < 2 * PAIRS:
            raise ValueError(f"must be at least {2 * PAIRS}: so many words tell the values")
        return distances

    def write(self, to: Written) -> None:
        words = Words(self.seed)
        to.text.mkdir(parents=True)
        with open(to.text / "recalls.txt", "w", encoding="utf-8") as file:
            for number in range(self.documents):
                draw = generator(key(self.seed, "long"), number)
                distance = self.distances[number % len(self.distances)]
                told, recalled = words.document(distance, self.times, draw)
                file.write(" ".join([*told, *recalled]) + "\n\n")
        write_lines(to.questions, self._questions(words))

    def _questions(self, words: "Words") -> Iterator[dict[str, str]]:
        """The value of the key that is exactly so many words away. For those who read both ways, a
        gap in a document like those of the text, about as far away."""
        for distance in self.distances:
            for number in range(QUESTIONS):
                draw = generator(key(self.seed, "long", "questions", distance), number)
                told, _ = words.document(distance, self.times, draw)
                first = 2 * (number % PAIRS)
                asked, answer = told[first : first + 2]
                others = [*told[:first], *told[first + 2 : 2 * PAIRS]]
                gap = [*told, asked, "[MASK]", *others]
                yield {
                    "prompt": " ".join([*told[: first + distance], asked]),
                    "answer": answer,
                    "gap": " ".join(gap),
                    "kind": f"distance-{distance}",
                }


class Words:
    """The keys, the values and the rest."""

    def __init__(self, seed: int) -> None:
        made = new_words(seed, "long", set())
        self.keys = list(islice(made, KEYS))
        self.values = {key: list(islice(made, VALUES)) for key in self.keys}
        self.counted = list(islice(made, COUNTED))

    def document(
        self, distance: int, times: int, draw: np.random.Generator
    ) -> tuple[list[str], list[str]]:
        """Keys with their values, and so many words of a count; then the keys so many times, each
        time in another order, with their values."""
        keys = [self.keys[n] for n in draw.permutation(KEYS)[:PAIRS]]
        pairs = [(key, self.values[key][int(draw.integers(VALUES))]) for key in keys]
        first = int(draw.integers(COUNTED))
        count = [self.counted[(first + n) % COUNTED] for n in range(distance)]
        again = [pairs[n] for _ in range(times) for n in draw.permutation(PAIRS)]
        return [*_flat(pairs), *count], _flat(again)


def _flat(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [word for pair in pairs for word in pair]
