"""What people of a village say: a language made to order, small enough for models of width 64.

A document is of one mood, or draws conclusions, or tells who does what to whom. So a model that
fills gaps learns which words praise and which blame, what is of which kind, and where agents stand;
and tasks ask for just that: the sentiment of a text, whether one
sentence follows from another, the role of every word. A second language has a word of its own for
each word, and puts the verb last.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import Field

from bertwright.randomness import generator, key
from bertwright.studies.corpora.corpus import Corpus, Written
from bertwright.studies.corpora.lexicon import new_words

Choice = TypeVar("Choice")

KINDS, THINGS_OF_A_KIND = 4, 6
ADJECTIVES, VERBS, PEOPLE = 10, 12, 20
"""Adjectives of each mood, verbs, and names."""

SENTENCES = 4
"""Of a document."""

TRAINING, DEVELOPMENT = 5_000, 500

MOODS = ("praise", "blame")

Spoken = Sequence[tuple[str, str]]
"""Words with their roles."""


class Village(Corpus):
    """So many documents in the first language, ``en``, and in ``second``, ``de``.

    Tasks: ``sentiment`` of a text, ``inference`` of a pair, ``roles`` of words, and ``roles-de``.
    """

    kind: Literal["village"] = "village"
    documents: int = Field(default=4_000, ge=100)
    second: int = Field(default=400, ge=50)
    seed: int = 0

    def write(self, to: Written) -> None:
        speech = Speech(self.seed)
        to.text.mkdir(parents=True)
        for code, count in (("en", self.documents), ("de", self.second)):
            told = speech.documents(code, count)
            _write(to.text / f"{code}.txt", (f"{' '.join(each)}\n\n" for each in told))
        tables = {
            "sentiment": ("text\tlabel\n", speech.sentiments),
            "inference": ("text\tpair\tlabel\n", speech.inferences),
        }
        for part, count in (("train", TRAINING), ("dev", DEVELOPMENT)):
            for name, (header, rows) in tables.items():
                written = ("\t".join(row) + "\n" for row in rows(part, count))
                _write(to.task(name) / f"{part}.tsv", (header, *written))
            for name, code in (("roles", "en"), ("roles-de", "de")):
                spoken = speech.actions(part, code, count)
                _write(to.task(name) / f"{part}.iob2", map(_tagged, spoken))

    def inputs(self, written: Written) -> list[str | Path]:
        return [f"{code}={written.text / code}.txt" for code in ("en", "de")]


class Speech:
    """The words of a seed, and what is said with them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        taken: set[str] = set()

        def words(purpose: str, count: int, syllables: int = 2) -> list[str]:
            return list(islice(new_words(seed, f"village {purpose}", taken, syllables), count))

        self.kinds = words("kinds", KINDS)
        things = words("things", KINDS * THINGS_OF_A_KIND)
        self.things = [things[kind::KINDS] for kind in range(KINDS)]
        self.adjectives = [words(mood, ADJECTIVES) for mood in MOODS]
        self.verbs = words("verbs", VERBS)
        self.people = words("people", PEOPLE, 3)
        known = [*self.kinds, *things, *chain(*self.adjectives), *self.verbs]
        known += ["the", "a", "is", "not", "by", "near", "so"]
        self._second = dict(zip(known, words("second", len(known)), strict=True))

    def documents(self, code: str, count: int) -> Iterator[list[str]]:
        """So many in a language, each its sentences."""
        for number in range(count):
            draw = generator(key(self.seed, "village text", code), number)
            mood, way = int(draw.integers(2)), number % 3
            said = [self._said(way, mood, draw) for _ in range(SENTENCES)]
            yield [_sentence(self._told(each, code)) for each in said]

    def sentiments(self, part: str, count: int) -> Iterator[tuple[str, str]]:
        """Texts of two opinions, and their mood."""
        draw = generator(key(self.seed, "sentiment", part))
        for _ in range(count):
            mood = int(draw.integers(2))
            said = [self._opinion(mood, draw) for _ in range(2)]
            yield " ".join(map(_sentence, said)), MOODS[mood]

    def inferences(self, part: str, count: int) -> Iterator[tuple[str, str, str]]:
        """Two sentences, and what the second is to the first."""
        draw = generator(key(self.seed, "inference", part))
        for _ in range(count):
            first, second, label = self._inference(draw, bool(draw.integers(2)))
            yield _sentence(_plain(first)), _sentence(_plain(second)), label

    def actions(self, part: str, code: str, count: int) -> Iterator[Spoken]:
        """Words with their roles."""
        draw = generator(key(self.seed, "roles", part))
        return (self._told(self._action(draw), code) for _ in range(count))

    def _said(self, way: int, mood: int, draw: np.random.Generator) -> Spoken:
        if way == 0:
            return self._opinion(mood, draw)
        return self._conclusion(draw) if way == 1 else self._action(draw)

    def _opinion(self, mood: int, draw: np.random.Generator) -> Spoken:
        """Something is as it should be, or is not as it should not be."""
        negated = int(draw.random() < 0.25)
        adjective = _one(self.adjectives[mood ^ negated], draw)
        words = ["the", self._thing(draw)[1], "is", *(["not"] if negated else []), adjective]
        return _plain(words)

    def _conclusion(self, draw: np.random.Generator) -> Spoken:
        first, second, _ = self._inference(draw, follows=True)
        return _plain([*first, "so", *second])

    def _inference(
        self, draw: np.random.Generator, follows: bool
    ) -> tuple[list[str], list[str], str]:
        """Whoever does something to a thing does it to something of its kind, and of no other."""
        kind, thing = self._thing(draw)
        who, does = _one(self.people, draw), _one(self.verbs, draw)
        other = (kind + int(draw.integers(1, KINDS))) % KINDS
        second = [who, does, "a", self.kinds[kind if follows else other]]
        return [who, does, "the", thing], second, "follows" if follows else "contradicts"

    def _action(self, draw: np.random.Generator) -> Spoken:
        """Somebody does something to something, or it is done by somebody; near something, now and
        then."""
        agent, patient = (self._member(draw, role) for role in ("AGENT", "PATIENT"))
        place = self._member(draw, "PLACE") if draw.random() < 0.5 else []
        near = [("near", "O"), *place] if place else []
        verb = (_one(self.verbs, draw), "VERB")
        if draw.random() < 0.4:
            return [*patient, *near, ("is", "O"), verb, ("by", "O"), *agent]
        return [*agent, *near, verb, *patient]

    def _member(self, draw: np.random.Generator, role: str) -> list[tuple[str, str]]:
        if draw.random() < 0.3:
            return [(_one(self.people, draw), role)]
        adjective = [(_one(_one(self.adjectives, draw), draw), "O")] if draw.random() < 0.4 else []
        return [("the", "O"), *adjective, (self._thing(draw)[1], role)]

    def _thing(self, draw: np.random.Generator) -> tuple[int, str]:
        kind = int(draw.integers(KINDS))
        return kind, _one(self.things[kind], draw)

    def _told(self, spoken: Spoken, code: str) -> Spoken:
        """In the words of a language; in the second one verbs come last."""
        if code == "en":
            return spoken
        last = [each for each in spoken if each[1] == "VERB"]
        words = [*(each for each in spoken if each[1] != "VERB"), *last]
        return [(self._second.get(word, word), role) for word, role in words]


def _one(choices: Sequence[Choice], draw: np.random.Generator) -> Choice:
    return choices[int(draw.integers(len(choices)))]


def _plain(words: Sequence[str]) -> Spoken:
    """Words whose roles nobody asks for."""
    return [(word, "O") for word in words]


def _sentence(spoken: Spoken) -> str:
    return " ".join(word for word, _ in spoken) + "."


def _tagged(spoken: Spoken) -> str:
    """A word and its role on every line, and an empty line."""
    lines = (f"{number}\t{word}\t{role}\n" for number, (word, role) in enumerate(spoken, 1))
    return "".join(lines) + "\n"


def _write(file: Path, lines: Iterable[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", encoding="utf-8") as opened:
        opened.writelines(lines)
