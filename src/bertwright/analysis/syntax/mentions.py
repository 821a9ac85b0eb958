"""Short tales in which two or three people are told of, and one of them is spoken of again; drawn
from a grammar of our own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Kind = Literal["pronoun", "name", "noun"]
Form = Literal["man", "woman", "several", "one"]
"""By what somebody is spoken of, and what a word says of who it is: one that says neither man nor
woman is of one."""

KINDS: tuple[Kind, ...] = get_args(Kind)
PEOPLE: tuple[Form, ...] = ("man", "woman", "several")

PRONOUNS = {"man": ("he", "him"), "woman": ("she", "her"), "several": ("they", "them")}
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

_SAID = (*(" ".join(own) for own in PRONOUNS.values()), NAMES["man"], NAMES["woman"])

WITHOUT_ARTICLE = frozenset(" ".join(_SAID).replace(":", " ").split())

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
"""With who stands at 0."""

ENDINGS = (
    "then 0 left the house .",
    "after an hour 0 went home .",
    "later a dog followed @ .",
    "the rain did not stop @ .",
)
"""The one who is spoken of again acts, or bears it."""


@dataclass(frozen=True)
class Called:
    """A word for somebody, and what it says of who it is."""

    word: str
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

    def share(self, chosen: Sequence[int]) -> float:
        """How many of these earlier mentions are of who is asked for."""
        return float(np.mean([self.before[n].person == self.asked.person for n in chosen]))


@dataclass(frozen=True)
class Person:
    """The names and the nouns of somebody; by ``told`` of them one is spoken of first."""

    form: Form
    names: tuple[Called, ...]
    nouns: tuple[Called, ...]
    told: tuple[Called, ...]

    def words(self, kind: Kind) -> tuple[Called, ...]:
        """By which somebody may be spoken of again."""
        pronoun = (Called(PRONOUNS[self.form][0], self.form),)
        return {"pronoun": pronoun, "name": self.names, "noun": self.nouns}[kind]


def tales(number: int, generator: np.random.Generator) -> list[Tale]:
    """So many of each kind."""
    return [drawn(kind, generator) for kind in KINDS for _ in range(number)]


def drawn(kind: Kind, generator: np.random.Generator) -> Tale:
    """One whose last mention is of this kind: who it is of has nothing to do with where they stand
    in what comes before."""
    telling = _Telling(_people(kind, generator), generator)
    telling.opening()
    for _ in range(generator.integers(3)):
        telling.between()
    telling.ending(kind)
    return Tale(tuple(telling.words), tuple(telling.mentions), kind)


class _Telling:
    """A tale as far as it is told."""

    def __init__(self, people: Sequence[Person], generator: np.random.Generator) -> None:
        self.people, self.generator = people, generator
        self.words: list[str] = []
        self.mentions: list[Mention] = []

    def opening(self) -> None:
        """All come in."""
        openings = OPENINGS[len(self.people)]
        for word in openings[self.generator.integers(len(openings))].split():
            if word.isdigit():
                self._introduce(int(word))
                continue
            # What is said of somebody's work ends where the sentence does.
            if word in (",", ".") and self.words[-1] == ",":
                self.words.pop()
            self.words.append(word)

    def between(self) -> None:
        """Somebody is spoken of by the first word for them or by a pronoun; or time goes by."""
        number = int(self.generator.integers(len(self.people)))
        person = self.people[number]
        words = (person.told[0], *person.words("pronoun"))
        self._again(str(self.generator.choice(BETWEEN)), number, words)

    def ending(self, kind: Kind) -> None:
        """Somebody is spoken of by a word of this kind."""
        able = [n for n, person in enumerate(self.people) if person.words(kind)]
        number = int(self.generator.choice(able))
        words = self.people[number].words(kind)
        self._again(str(self.generator.choice(ENDINGS)), number, words)

    def _introduce(self, number: int) -> None:
        first, *work = self.people[number].told
        self._mention(number, first)
        for other in work:
            self.words += [",", "a"]
            self._mention(number, other, with_article=False)
            self.words.append(",")

    def _again(self, sentence: str, number: int, options: Sequence[Called]) -> None:
        called = options[int(self.generator.integers(len(options)))]
        subject, other = PRONOUNS[self.people[number].form]
        for word in sentence.split():
            if word == "@" and called.word == subject:
                self._mention(number, Called(other, called.form))
            elif word in ("0", "@"):
                self._mention(number, called)
            else:
                self.words.append(word)

    def _mention(self, number: int, called: Called, with_article: bool = True) -> None:
        if with_article and called.word not in WITHOUT_ARTICLE:
            self.words.append("the")
        self.mentions.append(Mention(len(self.words), called.word, called.form, number))
        self.words.append(called.word)


def _people(kind: Kind, generator: np.random.Generator) -> list[Person]:
    """Two or three of different forms of whom one at least can be spoken of so; no word is for two
    of them."""
    while True:
        forms = generator.permutation(len(PEOPLE))[: generator.integers(2, 4)]
        people = [_person(PEOPLE[form], generator) for form in forms]
        words = [called.word for own in people for called in (*own.names, *own.nouns)]
        if len(set(words)) == len(words) and any(own.words(kind) for own in people):
            return people


def _person(form: Form, generator: np.random.Generator) -> Person:
    """Somebody without a name, with one, or with a name and work."""
    other = Called(OTHERWISE[form], form)
    if generator.random() < 0.5:
        noun, vague = str(generator.choice(NOUNS[form].split())).split(":")
        nouns = (Called(noun, form), Called(vague, "one"))
        return Person(form, (), nouns, nouns[:1])
    own = str(generator.choice(NAMES[form].split())).split(":")
    names = tuple(Called(name, form) for name in own)
    if form == "several" or generator.random() < 0.5:
        return Person(form, names, (other,), names[:1])
    work = Called(str(generator.choice(WORK.split())), "one")
    return Person(form, names, (work, other), (names[0], work))
