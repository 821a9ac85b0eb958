"""Short stories that mention one of two or three people again, sampled from a grammar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

MentionKind = Literal["pronoun", "name", "noun"]
PersonForm = Literal["man", "woman", "several", "one"]
"""Gender and number expressed by a word; "one" is a single person of either gender."""

MENTION_KINDS: tuple[MentionKind, ...] = get_args(MentionKind)
PERSON_FORMS: tuple[PersonForm, ...] = ("man", "woman", "several")

SUBJECT_PRONOUNS = {"man": "he", "woman": "she", "several": "they"}
OBJECT_PRONOUNS = {"he": "him", "she": "her", "they": "them"}
"""Subject pronouns by form, with their object forms."""

NAMES = {
    "man": "Robert:Bob William:Bill Thomas:Tom Michael:Mike James:Jim Joseph:Joe Charles:Charlie "
    "Edward:Ed Daniel:Dan David:Dave Samuel:Sam Benjamin:Ben Matthew:Matt Nicholas:Nick",
    "woman": "Elizabeth:Beth Catherine:Kate Susan:Sue Jennifer:Jenny Margaret:Maggie Rebecca:Becky "
    "Victoria:Vicky Deborah:Debbie Christina:Tina Patricia:Patty Amanda:Mandy Abigail:Abby",
    "several": "Americans Germans Russians Italians Indians Greeks Romans Egyptians Mexicans",
}
NOUNS = {
    "man": "king:ruler boy:child father:parent actor:star prince:heir husband:spouse "
    "waiter:servant brother:relative",
    "woman": "queen:ruler girl:child mother:parent actress:star princess:heir wife:spouse "
    "waitress:servant sister:relative",
    "several": "soldiers:army players:team students:class officers:police sailors:crew "
    "musicians:band workers:staff ministers:government",
}
"""Nouns for a person; the second noun of a pair expresses neither gender nor number."""

PROFESSIONS = (
    "doctor teacher lawyer writer driver farmer singer judge nurse pilot poet painter banker "
    "merchant reporter scientist"
)
GENERIC_NOUNS = {"man": "man", "woman": "woman", "several": "people"}

OPENING_SENTENCES = {
    2: ("0 met 1 in the garden .", "near the bridge 0 saw 1 .", "0 came to the town with 1 ."),
    3: (
        "0 met 1 and 2 in the garden .",
        "near the bridge 0 saw 1 with 2 .",
        "0 came to the town with 1 , and 2 came too .",
    ),
}
MIDDLE_SENTENCES = (
    "it was a cold morning .",
    "the house was old and the door was open .",
    "0 waited there .",
    "0 looked at the river .",
    "the wind came from the sea , and 0 laughed .",
)
FINAL_SENTENCES = (
    "then 0 left the house .",
    "after an hour 0 went home .",
    "later a dog followed @ .",
    "the rain did not stop @ .",
)
"""Sentences with a digit for a subject and @ for an object."""


@dataclass(frozen=True)
class NounPhrase:
    """Words for a person that end with the mention, and their form."""

    words: str
    form: PersonForm


@dataclass(frozen=True)
class Mention:
    """A mention: its word, form and person."""

    word_index: int
    word: str
    form: PersonForm
    person_index: int


@dataclass(frozen=True)
class CoreferenceStory:
    """A story with its mentions in order; the last one is the mention of ``kind`` to resolve."""

    words: tuple[str, ...]
    mentions: tuple[Mention, ...]
    kind: MentionKind

    @property
    def anaphor(self) -> Mention:
        """The mention to resolve."""
        return self.mentions[-1]

    @property
    def antecedents(self) -> tuple[Mention, ...]:
        """The earlier mentions."""
        return self.mentions[:-1]

    @property
    def is_coreferent(self) -> NDArray[np.bool_]:
        """True for antecedents that are the same person, (M,) bool."""
        return np.array(
            [mention.person_index == self.anaphor.person_index for mention in self.antecedents]
        )


@dataclass(frozen=True)
class StoryPerson:
    """A person: phrases in apposition for the first mention, and phrases by kind for later ones."""

    first_mentions: tuple[NounPhrase, ...]
    later_mentions: Mapping[MentionKind, tuple[NounPhrase, ...]]


def sample_stories(num_per_kind: int, generator: np.random.Generator) -> list[CoreferenceStory]:
    """Sample stories, ``num_per_kind`` of each kind."""
    return [sample_story(kind, generator) for kind in MENTION_KINDS for _ in range(num_per_kind)]


def sample_story(kind: MentionKind, generator: np.random.Generator) -> CoreferenceStory:
    """Sample a story whose last mention is of this kind.

    The person is chosen independently of the order of mentions.
    """
    people, builder = _sample_people(kind, generator), _StoryBuilder([], [])
    opening = str(generator.choice(OPENING_SENTENCES[len(people)]))
    builder.add_sentence(
        opening, {str(n): (n, person.first_mentions) for n, person in enumerate(people)}
    )
    for _ in range(generator.integers(3)):
        number = int(generator.integers(len(people)))
        words = (people[number].first_mentions[0], *people[number].later_mentions["pronoun"])
        builder.add_mention_sentence(
            str(generator.choice(MIDDLE_SENTENCES)), number, words[generator.integers(2)]
        )
    number = int(
        generator.choice([n for n, person in enumerate(people) if person.later_mentions[kind]])
    )
    words = people[number].later_mentions[kind]
    builder.add_mention_sentence(
        str(generator.choice(FINAL_SENTENCES)), number, words[generator.integers(len(words))]
    )
    return CoreferenceStory(tuple(builder.words), tuple(builder.mentions), kind)


@dataclass(frozen=True)
class _StoryBuilder:
    """A story under construction."""

    words: list[str]
    mentions: list[Mention]

    def add_sentence(
        self, sentence: str, mentions_by_slot: Mapping[str, tuple[int, Sequence[NounPhrase]]]
    ) -> None:
        """Add a sentence, filling its slots with mentions."""
        for word in sentence.split():
            if word in mentions_by_slot:
                self._add_mentions(*mentions_by_slot[word])
                continue
            # An apposition ends with the sentence.
            if word in (",", ".") and self.words[-1] == ",":
                self.words.pop()
            self.words.append(word)

    def add_mention_sentence(self, sentence: str, person_index: int, phrase: NounPhrase) -> None:
        """Add a sentence that mentions at most one person."""
        object_phrase = replace(phrase, words=OBJECT_PRONOUNS.get(phrase.words, phrase.words))
        self.add_sentence(
            sentence, {"0": (person_index, [phrase]), "@": (person_index, [object_phrase])}
        )

    def _add_mentions(self, person_index: int, phrases: Sequence[NounPhrase]) -> None:
        for phrase in phrases:
            self.words.extend(phrase.words.split())
            index = len(self.words) - 1
            self.mentions.append(Mention(index, self.words[-1], phrase.form, person_index))
            if len(phrases) > 1:
                self.words.append(",")


def _sample_people(kind: MentionKind, generator: np.random.Generator) -> list[StoryPerson]:
    """Sample two or three people of different forms who share no words.

    At least one of them has mentions of this kind.
    """
    while True:
        forms = generator.permutation(len(PERSON_FORMS))[: generator.integers(2, 4)]
        people = [_sample_person(PERSON_FORMS[form], generator) for form in forms]
        words = [
            phrase.words
            for person in people
            for phrases in person.later_mentions.values()
            for phrase in phrases
        ]
        is_possible = any(person.later_mentions[kind] for person in people)
        if len(set(words)) == len(words) and is_possible:
            return people


def _sample_person(form: PersonForm, generator: np.random.Generator) -> StoryPerson:
    """Sample a person with a noun, with a name, or with a name and a profession."""
    pronoun = (NounPhrase(SUBJECT_PRONOUNS[form], form),)
    if generator.random() < 0.5:
        noun, other = str(generator.choice(NOUNS[form].split())).split(":")
        nouns = (NounPhrase(f"the {noun}", form), NounPhrase(f"the {other}", "one"))
        return StoryPerson(nouns[:1], {"pronoun": pronoun, "name": (), "noun": nouns})
    article = "the " if form == "several" else ""
    variants = str(generator.choice(NAMES[form].split())).split(":")
    names = tuple(NounPhrase(article + name, form) for name in variants)
    nouns = (NounPhrase(f"the {GENERIC_NOUNS[form]}", form),)
    if form == "several" or generator.random() < 0.5:
        return StoryPerson(names[:1], {"pronoun": pronoun, "name": names, "noun": nouns})
    profession = str(generator.choice(PROFESSIONS.split()))
    nouns = (NounPhrase(f"the {profession}", "one"), *nouns)
    first = (names[0], NounPhrase(f"a {profession}", "one"))
    return StoryPerson(first, {"pronoun": pronoun, "name": names, "noun": nouns})
