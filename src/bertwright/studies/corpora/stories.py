"""Stories in a synthetic language; its words, names, facts and sentences depend on a seed."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from bertwright.core.rng import generator, stream_key

ONSETS = (*"bdfgklmnprstvz", "br", "dr", "gr", "kl", "pl", "tr")
VOWELS = (*"aeiou", "ai", "or", "en", "il")


def pseudowords(seed: int, purpose: str, used_words: set[str], syllables: int = 2) -> Iterator[str]:
    """Yield distinct words endlessly; they are not in ``used_words``, to which they are added."""
    rng = generator(stream_key(seed, "lexicon", purpose))
    while True:
        parts = [
            ONSETS[int(rng.integers(len(ONSETS)))] + VOWELS[int(rng.integers(len(VOWELS)))]
            for _ in range(syllables)
        ]
        word = "".join(parts)
        if word not in used_words:
            used_words.add(word)
            yield word


TOPICS = 8
NOUNS_OF_A_TOPIC = 12
VERBS, ADJECTIVES, PHRASES = 20, 20, 20
PEOPLE, COMPANIES, TOWNS = 30, 30, 15
HOURS = ("at dawn", "in the morning", "at noon", "in the afternoon", "in the evening", "at night")
"""The parts of a day, in order."""

SENTENCES_OF_AN_HOUR = 2
VERBS_OF_FACTS = ("founded", "lives", "has")
FUNCTION_WORDS = (*" ".join(HOURS).split(), "near", *VERBS_OF_FACTS, "its", "seat")
"""Words that do not depend on the seed."""


@dataclass(frozen=True)
class EntityName:
    """A name of one or more words, with the kind of entity that it names."""

    words: tuple[str, ...]
    kind: Literal["PER", "ORG", "LOC"]

    def __str__(self) -> str:
        return " ".join(self.words)


Word = str | EntityName
"""An element of a sentence: a word or a name."""


class World:
    """The words, names and facts that belong to a seed."""

    def __init__(self, seed: int) -> None:
        used: set[str] = set()

        def words(purpose: str, count: int, syllables: int = 2) -> list[str]:
            return list(islice(pseudowords(seed, purpose, used, syllables), count))

        nouns = words("nouns", TOPICS * NOUNS_OF_A_TOPIC)
        self.nouns = [nouns[topic::TOPICS] for topic in range(TOPICS)]
        self.verbs = words("verbs", VERBS)
        self._verbs = {*VERBS_OF_FACTS, *self.verbs, *(f"{verb}s" for verb in self.verbs)}
        self.adjectives = words("adjectives", ADJECTIVES)
        phrase_words = words("phrases", 3 * PHRASES)
        self.phrases = [tuple(phrase_words[n::PHRASES]) for n in range(PHRASES)]
        rng = generator(stream_key(seed, "world"))

        def names(purpose: str, count: int, kind: Literal["PER", "ORG", "LOC"]) -> list[EntityName]:
            parts = words(purpose, 3 * count, 3)
            sizes = rng.integers(1, 4, count)
            return [EntityName(tuple(parts[n::count][: sizes[n]]), kind) for n in range(count)]

        self.people = names("people", PEOPLE, "PER")
        self.companies = names("companies", COMPANIES, "ORG")
        self.towns = names("towns", TOWNS, "LOC")
        self.founded_companies = [self.companies[n] for n in rng.permutation(COMPANIES)]
        self.homes = [self.towns[n] for n in rng.integers(TOWNS, size=PEOPLE)]
        self.seats = [self.towns[n] for n in rng.integers(TOWNS, size=COMPANIES)]

    @property
    def words(self) -> list[str]:
        """All words except names, without the s of plurals and of verbs."""
        nouns = [noun for topic_nouns in self.nouns for noun in topic_nouns]
        phrases = [word for phrase in self.phrases for word in phrase]
        return list(
            dict.fromkeys([*FUNCTION_WORDS, *nouns, *self.verbs, *self.adjectives, *phrases])
        )

    def verb_index(self, words: Sequence[Word]) -> int:
        """Return the index of the verb of a sentence."""
        return next(index for index, word in enumerate(words) if word in self._verbs)

    def fact(self, rng: np.random.Generator) -> list[Word]:
        """Return a random fact as a sentence."""
        return self._fact(int(rng.integers(PEOPLE)), int(rng.integers(3)))

    def facts(self) -> Iterator[list[Word]]:
        """Yield all facts."""
        return (self._fact(number, relation) for number in range(PEOPLE) for relation in range(3))

    def _fact(self, number: int, relation: int) -> list[Word]:
        if relation == 0:
            return [self.people[number], "founded", self.founded_companies[number]]
        if relation == 1:
            return [self.people[number], "lives", "in", self.homes[number]]
        return [self.companies[number], "has", "its", "seat", "in", self.seats[number]]

    def verbs_of(self, hour: int) -> list[str]:
        """Return the verbs of an hour, in stories that tell the hour by their verbs alone."""
        return self.verbs[hour :: len(HOURS)]

    def clause(
        self, topic: int, rng: np.random.Generator, verbs: Sequence[str] | None = None
    ) -> "Clause":
        """Return a random clause with nouns of one topic; ``verbs`` are by default all."""
        verbs = self.verbs if verbs is None else verbs
        nouns = self.nouns[topic]
        subject, other, thing = (nouns[int(n)] for n in rng.choice(len(nouns), 3, replace=False))
        adjectives = [self.adjectives[int(n)] for n in rng.integers(ADJECTIVES, size=2)]
        phrase = self.phrases[int(rng.integers(PHRASES))] if rng.random() < 0.25 else None
        return Clause(
            subject,
            bool(rng.random() < 0.5),
            adjectives[0] if rng.random() < 0.5 else None,
            other if rng.random() < 0.5 else None,
            bool(rng.random() < 0.5),
            verbs[int(rng.integers(len(verbs)))],
            thing,
            adjectives[1] if rng.random() < 0.3 else None,
            phrase,
        )


@dataclass(frozen=True)
class Clause:
    """A clause: a subject, optionally near another noun, a verb and an object."""

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
        """Return the sentence without its hour."""
        near = ["near", "the", _inflect(self.near, self.near_plural)] if self.near else []
        thing = self.phrase or tuple(w for w in (self.thing_adjective, self.thing) if w)
        return [
            "the",
            *([self.adjective] if self.adjective else []),
            _inflect(self.subject, self.plural),
            *near,
            # As in English, singular verbs and plural nouns end in s.
            _inflect(self.verb, not self.plural),
            "the",
            *thing,
        ]


@dataclass(frozen=True)
class Story:
    """A document: its topic, and its sentences, each with the hour that it takes place."""

    topic: int
    sentences: Sequence[tuple[int, Sequence[Word]]]

    def __str__(self) -> str:
        return " ".join(format_sentence(words) for _, words in self.sentences)

    def annotations(self, phrases: Collection[tuple[str, ...]]) -> Iterator[tuple[int, int, str]]:
        """Yield the character spans and labels of names and ``phrases``."""
        start = 0
        for _, words in self.sentences:
            for index, word in enumerate(words):
                phrase = tuple(map(str, words[index : index + 3]))
                if isinstance(word, EntityName):
                    yield start, start + len(str(word)), word.kind
                elif phrase in phrases:
                    yield start, start + len(" ".join(phrase)), "phrase"
                start += len(str(word)) + 1
            start += 1  # the full stop replaces the space after the last word; a space follows


def generate_stories(
    world: World, seed: int, purpose: str, num_stories: int, with_hours: bool = True
) -> Iterator[Story]:
    """Yield stories, which are different for every purpose.

    With ``with_hours`` every sentence begins with its hour; otherwise there are no facts, and only
    the verbs tell the hour.
    """
    for number in range(num_stories):
        rng = generator(stream_key(seed, "stories", purpose), number)
        topic = int(rng.integers(TOPICS))
        sentences: list[tuple[int, Sequence[Word]]] = []
        for hour, name in enumerate(HOURS):
            for _ in range(SENTENCES_OF_AN_HOUR):
                if not with_hours:
                    clause = world.clause(topic, rng, world.verbs_of(hour))
                    sentences.append((hour, clause.words()))
                    continue
                is_fact = rng.random() < 0.25
                words = world.fact(rng) if is_fact else world.clause(topic, rng).words()
                sentences.append((hour, [*name.split(), *words]))
        yield Story(topic, sentences)


def add_connectives(story: Story) -> Story:
    """Return a story in which two of every three sentences start with a connective.

    The connective states the relation to the preceding sentence: a fact, the same time, or a later
    time.
    """
    sentences = [story.sentences[0]]
    for number, (hour, words) in enumerate(story.sentences[1:], 1):
        connective = "meanwhile," if hour == sentences[-1][0] else "then,"
        if any(verb in words for verb in VERBS_OF_FACTS):
            connective = "in fact,"
        sentences.append((hour, [*connective.split(), *words] if number % 3 else words))
    return Story(story.topic, sentences)


def format_sentence(words: Sequence[Word]) -> str:
    """Return the text of a sentence."""
    text = " ".join(str(word) for word in words)
    return f"{text[:1].upper()}{text[1:]}."


def _inflect(word: str, with_s: bool) -> str:
    return f"{word}s" if with_s else word
