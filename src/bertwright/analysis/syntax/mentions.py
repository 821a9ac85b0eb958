"""Short tales in which two or three people are told of, and one of them is spoken of again; drawn
from a grammar of our own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Kind = Literal["pronoun", "name", "noun"]
Form = Literal["man", "woman", "several", "one"]
"""By what somebody is spoken of, and what that says of who it is: a word that says neither man nor
woman is of one."""

KINDS: tuple[Kind, ...] = get_args(Kind)
PEOPLE: tuple[Form, ...] = ("man", "woman", "several")

PRONOUNS = {"man": "he", "woman": "she", "several": "they"}
BEARING = {"he": "him", "she": "her", "they": "them"}
"""Who does something, and to whom it is done."""

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
"""What somebody is called, and what else: the second of two nouns says nothing of man, woman or
how many."""

WORK = (
    "doctor teacher lawyer writer driver farmer singer judge nurse pilot poet painter banker "
    "merchant reporter scientist"
)
OTHERWISE = {"man": "man", "woman": "woman", "several": "people"}

OPENINGS = {
    2: ("0 met 1 in the garden .", "near the bridge 0 saw 1 .", "0 came to the town with 1 ."),
    3: (
        "0 met 1 and 2 in the garden .",
        "near the bridge 0 saw 1 with 2 .",
        "0 came to the town with 1 , and 2 came too .",
    ),
}
BETWEEN = (
    "it was a cold morning .",
    "the house was old and the door was open .",
    "0 waited there .",
    "0 looked at the river .",
    "the wind came from the sea , and 0 laughed .",
)
ENDINGS = (
    "then 0 left the house .",
    "after an hour 0 went home .",
    "later a dog followed @ .",
    "the rain did not stop @ .",
)
"""With who does something at a number, and to whom it is done at @."""


@dataclass(frozen=True)
class Called:
    """Words for somebody, of which the last is looked at, and what it says of who it is."""

    words: str
    form: Form


@dataclass(frozen=True)
class Mention:
    """Where the word for somebody stands, and who it is."""

    place: int
    word: str
    form: Form
    person: int


@dataclass(frozen=True)
class Tale:
    """Its words, and all who are spoken of, in their order: the last is asked for, by a word of the
    kind."""

    words: tuple[str, ...]
    mentions: tuple[Mention, ...]
    kind: Kind

    @property
    def asked(self) -> Mention:
        """Whose earlier mention is to be found."""
        return self.mentions[-1]

    @property
    def before(self) -> tuple[Mention, ...]:
        """Among which it is to be found."""
        return self.mentions[:-1]

    @property
    def same(self) -> NDArray[np.bool_]:
        """Which of these are of who is asked for."""
        return np.array([mention.person == self.asked.person for mention in self.before])


@dataclass(frozen=True)
class Person:
    """By what somebody is spoken of at first, all in one breath, and by what again."""

    first: tuple[Called, ...]
    again: Mapping[Kind, tuple[Called, ...]]


def tales(number: int, generator: np.random.Generator) -> list[Tale]:
    """So many of each kind."""
    return [drawn(kind, generator) for kind in KINDS for _ in range(number)]


def drawn(kind: Kind, generator: np.random.Generator) -> Tale:
    """One whose last mention is of this kind: who it is of has nothing to do with where they stand
    in what comes before."""
    people, told = _people(kind, generator), _Told([], [])
    opening = str(generator.choice(OPENINGS[len(people)]))
    told.say(opening, {str(n): (n, person.first) for n, person in enumerate(people)})
    for _ in range(generator.integers(3)):
        number = int(generator.integers(len(people)))
        words = (people[number].first[0], *people[number].again["pronoun"])
        told.again(str(generator.choice(BETWEEN)), number, words[generator.integers(2)])
    number = int(generator.choice([n for n, person in enumerate(people) if person.again[kind]]))
    words = people[number].again[kind]
    told.again(str(generator.choice(ENDINGS)), number, words[generator.integers(len(words))])
    return Tale(tuple(told.words), tuple(told.mentions), kind)


@dataclass(frozen=True)
class _Told:
    """A tale as far as it is told."""

    words: list[str]
    mentions: list[Mention]

    def say(self, sentence: str, who: Mapping[str, tuple[int, Sequence[Called]]]) -> None:
        """One more sentence, in which these stand for people."""
        for word in sentence.split():
            if word in who:
                self._mention(*who[word])
                continue
            # What is put behind a name ends where the sentence does.
            if word in (",", ".") and self.words[-1] == ",":
                self.words.pop()
            self.words.append(word)

    def again(self, sentence: str, number: int, called: Called) -> None:
        """One in which at most one of them is spoken of."""
        borne = replace(called, words=BEARING.get(called.words, called.words))
        self.say(sentence, {"0": (number, [called]), "@": (number, [borne])})

    def _mention(self, number: int, all_called: Sequence[Called]) -> None:
        for called in all_called:
            self.words.extend(called.words.split())
            place = len(self.words) - 1
            self.mentions.append(Mention(place, self.words[-1], called.form, number))
            if len(all_called) > 1:
                self.words.append(",")


def _people(kind: Kind, generator: np.random.Generator) -> list[Person]:
    """Two or three of different forms of whom one at least can be spoken of so; no word is for two
    of them."""
    while True:
        forms = generator.permutation(len(PEOPLE))[: generator.integers(2, 4)]
        people = [_person(PEOPLE[form], generator) for form in forms]
        words = [each.words for own in people for called in own.again.values() for each in called]
        if len(set(words)) == len(words) and any(own.again[kind] for own in people):
            return people


def _person(form: Form, generator: np.random.Generator) -> Person:
    """Somebody without a name, with one, or with a name and work."""
    pronoun = (Called(PRONOUNS[form], form),)
    if generator.random() < 0.5:
        noun, other = str(generator.choice(NOUNS[form].split())).split(":")
        nouns = (Called(f"the {noun}", form), Called(f"the {other}", "one"))
        return Person(nouns[:1], {"pronoun": pronoun, "name": (), "noun": nouns})
    article = "the " if form == "several" else ""
    own = str(generator.choice(NAMES[form].split())).split(":")
    names = tuple(Called(article + name, form) for name in own)
    nouns = (Called(f"the {OTHERWISE[form]}", form),)
    if form == "several" or generator.random() < 0.5:
        return Person(names[:1], {"pronoun": pronoun, "name": names, "noun": nouns})
    work = str(generator.choice(WORK.split()))
    nouns = (Called(f"the {work}", "one"), *nouns)
    first = (names[0], Called(f"a {work}", "one"))
    return Person(first, {"pronoun": pronoun, "name": names, "noun": nouns})
