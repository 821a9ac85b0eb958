"""Text with long-range dependencies: keys with their values, filler words, and the keys again.

Every document draws new values for its keys, so after the filler the values follow only from the
start of the document. The two mentions of a key are about one of the ``distances`` apart, in words.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from bertwright.core.rng import generator, stream_key
from bertwright.studies.corpora.corpus import Corpus, CorpusFolder, write_jsonl
from bertwright.studies.corpora.stories import pseudowords

KEYS, VALUES, NUM_FILLERS = 8, 8, 8
"""Numbers of different words. Every key has its own values, so that small models learn quickly; the
filler words repeat in a cycle."""

PAIRS = 4
"""Number of keys in a document."""

NUM_PROMPTS = 200
"""Number of prompts per distance."""


class LongRangeCorpus(Corpus):
    """A corpus of documents with all ``distances`` equally often, in words from a key to its copy.

    All keys are repeated ``repetitions`` times after the filler. Use one repetition for
    bidirectional models, which otherwise find the value in a nearby repetition.
    """

    kind: Literal["long"] = "long"
    documents: int = Field(default=20_000, ge=100)
    distances: tuple[int, ...] = Field(default=(32, 64, 128), min_length=1)
    repetitions: int = Field(default=3, ge=1)
    seed: int = 0

    @field_validator("distances")
    @classmethod
    def _check_distances(cls, distances: tuple[int, ...]) -> tuple[int, ...]:
        if min(distances) < 2 * PAIRS:
            raise ValueError(f"must be at least {2 * PAIRS}, the number of words of the pairs")
        return distances

    def write(self, corpus_folder: CorpusFolder) -> None:
        words = RecallVocabulary(self.seed)
        corpus_folder.text.mkdir(parents=True)
        with open(corpus_folder.text / "recalls.txt", "w", encoding="utf-8") as file:
            for number in range(self.documents):
                rng = generator(stream_key(self.seed, "long"), number)
                distance = self.distances[number % len(self.distances)]
                parts = words.document(distance, self.repetitions, rng)
                file.write(" ".join([*parts[0], *parts[1]]) + "\n\n")
        write_jsonl(corpus_folder.prompts, self._prompts(words))

    def _prompts(self, vocabulary: "RecallVocabulary") -> Iterator[dict[str, str]]:
        """Yield prompts for the value of a key at an exact distance.

        For bidirectional models, ``gap`` is a document of the corpus with a mask at about the same
        distance.
        """
        for distance in self.distances:
            for number in range(NUM_PROMPTS):
                rng = generator(stream_key(self.seed, "long", "questions", distance), number)
                words, _ = vocabulary.document(distance, self.repetitions, rng)
                first = 2 * (number % PAIRS)
                key, value = words[first : first + 2]
                others = [*words[:first], *words[first + 2 : 2 * PAIRS]]
                yield {
                    "prompt": " ".join([*words[: first + distance], key]),
                    "continuation": value,
                    "gap": " ".join([*words, key, "[MASK]", *others]),
                    "kind": f"distance-{distance}",
                }


class RecallVocabulary:
    """The words for keys, values and filler."""

    def __init__(self, seed: int) -> None:
        words = pseudowords(seed, "long", set())
        self.keys = list(islice(words, KEYS))
        self.values = {key: list(islice(words, VALUES)) for key in self.keys}
        self.fillers = list(islice(words, NUM_FILLERS))

    def document(
        self, distance: int, repetitions: int, rng: np.random.Generator
    ) -> tuple[list[str], list[str]]:
        """Return keys with values and ``distance`` filler words, then the repetitions of the keys.

        Each repetition has a different order.
        """
        keys = [self.keys[n] for n in rng.permutation(KEYS)[:PAIRS]]
        pairs = [(key, self.values[key][int(rng.integers(VALUES))]) for key in keys]
        first = int(rng.integers(NUM_FILLERS))
        filler = [self.fillers[(first + n) % NUM_FILLERS] for n in range(distance)]
        repeated = [pairs[n] for _ in range(repetitions) for n in rng.permutation(PAIRS)]
        return [*_flatten(pairs), *filler], _flatten(repeated)


def _flatten(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [word for pair in pairs for word in pair]
