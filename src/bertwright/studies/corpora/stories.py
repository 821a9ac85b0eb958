"""A language made to order: a grammar, a world of facts, and stories in the order of a day.

What there is to be learned is known. Verbs agree in number with their subject, over a distractor
in between. A document has a topic, which its nouns belong to. People found companies and live in
towns, and companies have their seat in a town, always the same ones; names are of one to three
words. Some phrases of three words always stand together. The sentences of a document tell of a day
from its morning to its night.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from bertwright.randomness import generator, key
from bertwright.studies.corpora.lexicon import new_words

TOPICS = 8
NOUNS_OF_A_TOPIC = 12
VERBS, ADJECTIVES, PHRASES = 20, 20, 20
PEOPLE, COMPANIES, TOWNS = 30, 30, 15
HOURS = ("at dawn", "in the morning", "at noon", "in the afternoon", "in the evening", "at night")
"""The parts of a day, in order."""

SENTENCES_OF_AN_HOUR = 2
VERBS_OF_FACTS = ("founded", "lives", "has")
BETWEEN = (*" ".join(HOURS).split(), "near", *VERBS_OF_FACTS, "its", "seat")
"""The words that every seed has."""


@dataclass(frozen=True)
class Name:
    """Somebody or something with a name of one or more words, and what kind it is of."""

    words: tuple[str, ...]
    kind: Literal["PER", "ORG", "LOC"]

    def __str__(self) -> str:
        return " ".join(self.words)


Word = str | Name
"""What a sentence is made of."""


class World:
    """The words, the names and the facts of a seed."""

    def __init__(self, seed: int) -> None:
        taken: set[str] = set()

        def words(purpose: str, count: int, syllables: int = 2) -> list[str]:
            return list(islice(new_words(seed, purpose, taken, syllables), count))

        nouns = words("nouns", TOPICS * NOUNS_OF_A_TOPIC)
        self.nouns = [nouns[topic::TOPICS] for topic in range(TOPICS)]
        self.verbs = words("verbs", VERBS)
        self._verbs = {*VERBS_OF_FACTS, *self.verbs, *(f"{verb}s" for verb in self.verbs)}
        self.adjectives = words("adjectives", ADJECTIVES)
        phrase_words = words("phrases", 3 * PHRASES)
        self.phrases = [tuple(phrase_words[n::PHRASES]) for n in range(PHRASES)]
        draw = generator(key(seed, "world"))

        def names(purpose: str, count: int, kind: Literal["PER", "ORG", "LOC"]) -> list[Name]:
            parts = words(purpose, 3 * count, 3)
            sizes = draw.integers(1, 4, count)
            return [Name(tuple(parts[n::count][: sizes[n]]), kind) for n in range(count)]

        self.people = names("people", PEOPLE, "PER")
        self.companies = names("companies", COMPANIES, "ORG")
        self.towns = names("towns", TOWNS, "LOC")
        self.founded = [self.companies[n] for n in draw.permutation(COMPANIES)]
        self.home = [self.towns[n] for n in draw.integers(TOWNS, size=PEOPLE)]
        self.seat = [self.towns[n] for n in draw.integers(TOWNS, size=COMPANIES)]

    @property
    def words(self) -> list[str]:
        """Every word, names aside: without the s of number."""
        nouns = [noun for own in self.nouns for noun in own]
        phrases = [word for phrase in self.phrases for word in phrase]
        return list(dict.fromkeys([*BETWEEN, *nouns, *self.verbs, *self.adjectives, *phrases]))

    def verb(self, words: Sequence[Word]) -> int:
        """Where the verb of a sentence stands."""
        return next(place for place, word in enumerate(words) if word in self._verbs)

    def fact(self, draw: np.random.Generator) -> list[Word]:
        """One of the facts, as a sentence."""
        return self._fact(int(draw.integers(PEOPLE)), int(draw.integers(3)))

    def facts(self) -> Iterator[list[Word]]:
        """All of them."""
        return (self._fact(number, relation) for number in range(PEOPLE) for relation in range(3))

    def _fact(self, number: int, relation: int) -> list[Word]:
        if relation == 0:
            return [self.people[number], "founded", self.founded[number]]
        if relation == 1:
            return [self.people[number], "lives", "in", self.home[number]]
        return [self.companies[number], "has", "its", "seat", "in", self.seat[number]]

    def clause(self, topic: int, draw: np.random.Generator) -> "Clause":
        """A clause of nouns of a topic."""
        nouns = self.nouns[topic]
        subject, other, thing = (nouns[int(n)] for n in draw.choice(len(nouns), 3, replace=False))
        adjectives = [self.adjectives[int(n)] for n in draw.integers(ADJECTIVES, size=2)]
        phrase = self.phrases[int(draw.integers(PHRASES))] if draw.random() < 0.25 else None
        return Clause(
            subject,
            bool(draw.random() < 0.5),
            adjectives[0] if draw.random() < 0.5 else None,
            other if draw.random() < 0.5 else None,
            bool(draw.random() < 0.5),
            self.verbs[int(draw.integers(VERBS))],
            thing,
            adjectives[1] if draw.random() < 0.3 else None,
            phrase,
        )


@dataclass(frozen=True)
class Clause:
    """Somebody, perhaps near somebody else, does something to something."""

    subject: str
    plural: bool
    adjective: str | None
    near: str | None
    near_plural: bool
    verb: str
    thing: str
    thing_adjective: str | None
    phrase: tuple[str, ...] | None

    def words(self) -> list[Word]:
        """The sentence without its hour."""
        near = ["near", "the", _in_number(self.near, self.near_plural)] if self.near else []
        thing = self.phrase or tuple(w for w in (self.thing_adjective, self.thing) if w)
        return [
            "the",
            *([self.adjective] if self.adjective else []),
            _in_number(self.subject, self.plural),
            *near,
            # The verb of one has an s, the noun of several, as in English.
            _in_number(self.verb, not self.plural),
            "the",
            *thing,
        ]


@dataclass(frozen=True)
class Story:
    """A document: its topic, and its sentences with the hour that each belongs to."""

    topic: int
    sentences: Sequence[tuple[int, Sequence[Word]]]

    def __str__(self) -> str:
        return " ".join(sentence(words) for _, words in self.sentences)

    def known(self, phrases: Collection[tuple[str, ...]]) -> Iterator[tuple[int, int, str]]:
        """Where its names and ``phrases`` stand, in characters, and what they are."""
        place = 0
        for _, words in self.sentences:
            for number, word in enumerate(words):
                here = tuple(map(str, words[number : number + 3]))
                if isinstance(word, Name):
                    yield place, place + len(str(word)), word.kind
                elif here in phrases:
                    yield place, place + len(" ".join(here)), "phrase"
                place += len(str(word)) + 1
            place += 1  # the full stop, where the last word had its space, and a space


def stories(world: World, seed: int, purpose: str, count: int) -> Iterator[Story]:
    """So many stories, others for every purpose."""
    for number in range(count):
        draw = generator(key(seed, "stories", purpose), number)
        topic = int(draw.integers(TOPICS))
        told: list[tuple[int, Sequence[Word]]] = []
        for hour, name in enumerate(HOURS):
            for _ in range(SENTENCES_OF_AN_HOUR):
                is_fact = draw.random() < 0.25
                words = world.fact(draw) if is_fact else world.clause(topic, draw).words()
                told.append((hour, [*name.split(), *words]))
        yield Story(topic, told)


def connected(story: Story) -> Story:
    """The same story, two of three sentences opened by what they are to the one before: a fact, at
    the same time, or after it."""
    told = [story.sentences[0]]
    for number, (hour, words) in enumerate(story.sentences[1:], 1):
        opening = "meanwhile," if hour == told[-1][0] else "then,"
        if any(verb in words for verb in VERBS_OF_FACTS):
            opening = "in fact,"
        told.append((hour, [*opening.split(), *words] if number % 3 else words))
    return Story(story.topic, told)


def sentence(words: Sequence[Word]) -> str:
    """A sentence as it is written."""
    written = " ".join(str(word) for word in words)
    return f"{written[:1].upper()}{written[1:]}."


def _in_number(word: str, with_s: bool) -> str:
    return f"{word}s" if with_s else word
