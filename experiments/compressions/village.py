"""A synthetic language of a village, small enough for models of width 64.

A document is of one mood, or draws conclusions, or tells who does what to whom. So a model that
predicts masked tokens learns which words praise and which blame, which kind a thing is of, and
where agents are; and the tasks need just that: sentiment of a text, entailment between sentences,
the role of every word. A second language has its own word for each word, and the verb at the end.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import Field

from bertwright.core.rng import generator, stream_key
from bertwright.studies.corpora.corpus import Corpus, CorpusFolder
from bertwright.studies.corpora.stories import pseudowords

T = TypeVar("T")

KINDS, THINGS_OF_A_KIND = 4, 6
ADJECTIVES, VERBS, PEOPLE = 10, 12, 20
"""The numbers of adjectives per mood, of verbs, and of names."""

SENTENCES = 4
"""The number of sentences of a document."""

OPINIONS = 5
"""The odd number of opinions; the majority decides."""

TRAINING, DEVELOPMENT = 5_000, 500

MOODS = ("praise", "blame")

RoleTaggedWords = Sequence[tuple[str, str]]
"""Words with their roles."""


class VillageCorpus(Corpus):
    """A corpus of documents in the first language, ``en``, and in the second, ``de``.

    Tasks: ``sentiment`` of a text, ``majority`` of opinions in a text, ``inference`` of a pair,
    ``roles`` of words, and ``roles-de``.
    """

    kind: Literal["village"] = "village"
    documents: int = Field(default=4_000, ge=100)
    second_documents: int = Field(default=400, ge=50)
    seed: int = 0

    def write(self, corpus_folder: CorpusFolder) -> None:
        language = VillageLanguage(self.seed)
        corpus_folder.text.mkdir(parents=True)
        for code, count in (("en", self.documents), ("de", self.second_documents)):
            documents = language.documents(code, count)
            lines = (f"{' '.join(sentences)}\n\n" for sentences in documents)
            _write_text(corpus_folder.text / f"{code}.txt", lines)
        tables = {
            "sentiment": ("text\tlabel\n", language.sentiments),
            "majority": ("text\tlabel\n", language.majorities),
            "inference": ("text\tpair\tlabel\n", language.inferences),
        }
        for part, count in (("train", TRAINING), ("dev", DEVELOPMENT)):
            for name, (header, rows) in tables.items():
                lines = ("\t".join(row) + "\n" for row in rows(part, count))
                _write_text(corpus_folder.task(name) / f"{part}.tsv", (header, *lines))
            for name, code in (("roles", "en"), ("roles-de", "de")):
                sentences = language.actions(part, code, count)
                _write_text(corpus_folder.task(name) / f"{part}.iob2", map(_iob_lines, sentences))

    def inputs(self, corpus_folder: CorpusFolder) -> list[str | Path]:
        return [f"{code}={corpus_folder.text / code}.txt" for code in ("en", "de")]


class VillageLanguage:
    """The words of a seed, and random sentences of them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        used: set[str] = set()

        def words(purpose: str, count: int, syllables: int = 2) -> list[str]:
            return list(islice(pseudowords(seed, f"village {purpose}", used, syllables), count))

        self.kinds = words("kinds", KINDS)
        things = words("things", KINDS * THINGS_OF_A_KIND)
        self.things = [things[kind::KINDS] for kind in range(KINDS)]
        self.adjectives = [words(mood, ADJECTIVES) for mood in MOODS]
        self.verbs = words("verbs", VERBS)
        self.people = words("people", PEOPLE, 3)
        first = [*self.kinds, *things, *chain(*self.adjectives), *self.verbs]
        first += ["the", "a", "is", "not", "by", "near", "so"]
        self._second = dict(zip(first, words("second", len(first)), strict=True))

    def documents(self, code: str, count: int) -> Iterator[list[str]]:
        """Yield documents in a language, each a list of sentences."""
        for number in range(count):
            rng = generator(stream_key(self.seed, "village text", code), number)
            mood, sentence_type = int(rng.integers(2)), number % 3
            sentences = [self._random_sentence(sentence_type, mood, rng) for _ in range(SENTENCES)]
            yield [_format_sentence(self._translate(words, code)) for words in sentences]

    def sentiments(self, part: str, count: int) -> Iterator[tuple[str, str]]:
        """Yield texts of two opinions, and their mood."""
        rng = generator(stream_key(self.seed, "sentiment", part))
        for _ in range(count):
            mood = int(rng.integers(2))
            opinions = [self._opinion(mood, rng) for _ in range(2)]
            yield " ".join(map(_format_sentence, opinions)), MOODS[mood]

    def majorities(self, part: str, count: int) -> Iterator[tuple[str, str]]:
        """Yield texts of several opinions, and the mood of most of them.

        Unlike the other tasks it is not all or nothing: the closer the majority, the harder.
        """
        rng = generator(stream_key(self.seed, "majority", part))
        for _ in range(count):
            moods = rng.integers(2, size=OPINIONS)
            opinions = [self._opinion(int(mood), rng) for mood in moods]
            label = MOODS[int(2 * moods.sum() > OPINIONS)]
            yield " ".join(map(_format_sentence, opinions)), label

    def inferences(self, part: str, count: int) -> Iterator[tuple[str, str, str]]:
        """Yield two sentences and their relation."""
        rng = generator(stream_key(self.seed, "inference", part))
        for _ in range(count):
            first, second, label = self._inference(rng, bool(rng.integers(2)))
            yield (
                _format_sentence(_without_roles(first)),
                _format_sentence(_without_roles(second)),
                label,
            )

    def actions(self, part: str, code: str, count: int) -> Iterator[RoleTaggedWords]:
        """Return sentences whose words are tagged with roles."""
        rng = generator(stream_key(self.seed, "roles", part))
        return (self._translate(self._action(rng), code) for _ in range(count))

    def _random_sentence(
        self, sentence_type: int, mood: int, rng: np.random.Generator
    ) -> RoleTaggedWords:
        if sentence_type == 0:
            return self._opinion(mood, rng)
        return self._conclusion(rng) if sentence_type == 1 else self._action(rng)

    def _opinion(self, mood: int, rng: np.random.Generator) -> RoleTaggedWords:
        """Return an opinion of a mood, sometimes by negating an adjective of the other."""
        negated = int(rng.random() < 0.25)
        adjective = _choose(self.adjectives[mood ^ negated], rng)
        words = ["the", self._thing(rng)[1], "is", *(["not"] if negated else []), adjective]
        return _without_roles(words)

    def _conclusion(self, rng: np.random.Generator) -> RoleTaggedWords:
        first, second, _ = self._inference(rng, follows=True)
        return _without_roles([*first, "so", *second])

    def _inference(
        self, rng: np.random.Generator, follows: bool
    ) -> tuple[list[str], list[str], str]:
        """Return an action on a thing, and the same on its kind or, contradicting, on another."""
        kind, thing = self._thing(rng)
        agent, verb = _choose(self.people, rng), _choose(self.verbs, rng)
        other = (kind + int(rng.integers(1, KINDS))) % KINDS
        second = [agent, verb, "a", self.kinds[kind if follows else other]]
        return [agent, verb, "the", thing], second, "follows" if follows else "contradicts"

    def _action(self, rng: np.random.Generator) -> RoleTaggedWords:
        """Return an active or passive sentence, sometimes with the place of the action."""
        agent, patient = (self._noun_phrase(rng, role) for role in ("AGENT", "PATIENT"))
        location = self._noun_phrase(rng, "PLACE") if rng.random() < 0.5 else []
        near = [("near", "O"), *location] if location else []
        verb = (_choose(self.verbs, rng), "VERB")
        if rng.random() < 0.4:
            return [*patient, *near, ("is", "O"), verb, ("by", "O"), *agent]
        return [*agent, *near, verb, *patient]

    def _noun_phrase(self, rng: np.random.Generator, role: str) -> list[tuple[str, str]]:
        if rng.random() < 0.3:
            return [(_choose(self.people, rng), role)]
        adjective = (
            [(_choose(_choose(self.adjectives, rng), rng), "O")] if rng.random() < 0.4 else []
        )
        return [("the", "O"), *adjective, (self._thing(rng)[1], role)]

    def _thing(self, rng: np.random.Generator) -> tuple[int, str]:
        kind = int(rng.integers(KINDS))
        return kind, _choose(self.things[kind], rng)

    def _translate(self, tagged_words: RoleTaggedWords, code: str) -> RoleTaggedWords:
        """Translate a sentence; in the second language verbs come last."""
        if code == "en":
            return tagged_words
        verbs = [word for word in tagged_words if word[1] == "VERB"]
        words = [*(word for word in tagged_words if word[1] != "VERB"), *verbs]
        return [(self._second.get(word, word), role) for word, role in words]


def _choose(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]


def _without_roles(words: Sequence[str]) -> RoleTaggedWords:
    """Tag words with O."""
    return [(word, "O") for word in words]


def _format_sentence(words: RoleTaggedWords) -> str:
    return " ".join(word for word, _ in words) + "."


def _iob_lines(words: RoleTaggedWords) -> str:
    """Return a line for every word with its role, and an empty line."""
    lines = (f"{number}\t{word}\t{role}\n" for number, (word, role) in enumerate(words, 1))
    return "".join(lines) + "\n"


def _write_text(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)
