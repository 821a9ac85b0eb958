"""A small language whose trees are known: what a toy model learns, and is then asked of.

Verbs agree with their subjects, prepositions and clauses stand between them, auxiliaries can be two
in a sentence. The words are those of the analyses that make their own sentences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from bertwright.analysis.behaviour.agreement import PARADIGMS as AGREEMENT
from bertwright.analysis.behaviour.agreement import PLURAL, PREPOSITIONS, SINGULAR
from bertwright.analysis.behaviour.agreement import drawn as agreeing
from bertwright.analysis.behaviour.facts import RELATIONS
from bertwright.analysis.behaviour.negation import items
from bertwright.analysis.behaviour.word_kinds import NAMES
from bertwright.analysis.geometry.two_senses import SENTENCES as TWO_SENSES
from bertwright.analysis.probing.main_auxiliary import drawn as with_auxiliaries
from bertwright.randomness import key
from bertwright.tasks.formats.treebank import Tree

Choice = TypeVar("Choice")

PEOPLE = (*NAMES["women"][:6], *NAMES["men"][:6])
DETERMINERS = ("the", "some", "my", "your")
ADJECTIVES = ("big", "small", "old", "young", "happy", "quiet")
AUXILIARIES = ("can", "could", "will", "would")
ALONE = (("sleeps", "sleep"), ("sings", "sing"), ("walks", "walk"), ("waits", "wait"))
WITH_OBJECT = (("sees", "see"), ("helps", "help"), ("likes", "like"), ("knows", "know"))


@dataclass
class Phrase:
    """Words with their tree as it grows; ``top`` is where the word stands on which all hang."""

    words: list[str] = field(default_factory=list[str])
    heads: list[int] = field(default_factory=list[int])
    relations: list[str] = field(default_factory=list[str])
    tags: list[str] = field(default_factory=list[str])
    top: int = 0
    plural: bool = False

    def word(self, word: str, tag: str) -> int:
        """One more word, whose head is not known yet; where it stands."""
        self.words.append(word)
        self.heads.append(-1)
        self.relations.append("root")
        self.tags.append(tag)
        return len(self.words) - 1

    def phrase(self, other: "Phrase") -> int:
        """Another phrase behind this one; where its top stands."""
        start = len(self.words)
        self.words += other.words
        self.heads += [start + head if head >= 0 else -1 for head in other.heads]
        self.relations += other.relations
        self.tags += other.tags
        return start + other.top

    def hang(self, word: int, head: int, relation: str) -> None:
        """Say what a word depends on."""
        self.heads[word], self.relations[word] = head, relation


@dataclass(frozen=True)
class Grammar:
    """Draws sentences."""

    generator: np.random.Generator

    def sentence(self) -> Tree:
        """A subject, what it does, and a full stop."""
        own = Phrase()
        subject = self._thing(deep=True)
        noun = own.phrase(subject)
        verb = self._done(own, plural=subject.plural, deep=True)
        own.hang(noun, verb, "nsubj")
        own.hang(own.word(".", "PUNCT"), verb, "punct")
        return Tree(tuple(own.words), tuple(own.heads), tuple(own.relations), tuple(own.tags))

    def _thing(self, deep: bool) -> Phrase:
        """A name, or a noun with what stands around it; ``deep`` allows a phrase or a clause behind
        it."""
        if self._often(0.1):
            return self._person()
        own = Phrase(plural=self._often(0.5))
        before = [(own.word(self._one(DETERMINERS), "DET"), "det")]
        if self._often(0.3):
            before.append((own.word(self._one(ADJECTIVES), "ADJ"), "amod"))
        own.top = own.word(self._one(PLURAL if own.plural else SINGULAR), "NOUN")
        for word, relation in before:
            own.hang(word, own.top, relation)
        if deep and self._often(0.3):
            preposition = own.word(self._one(PREPOSITIONS), "ADP")
            noun = own.phrase(self._thing(deep=False))
            own.hang(preposition, noun, "case")
            own.hang(noun, own.top, "nmod")
        elif deep and self._often(0.3):
            who = own.word("who", "PRON")
            verb = self._done(own, plural=own.plural, deep=False)
            own.hang(who, verb, "nsubj")
            own.hang(verb, own.top, "acl")
        return own

    def _person(self) -> Phrase:
        own = Phrase()
        own.top = own.word(self._one(PEOPLE), "PROPN")
        return own

    def _done(self, own: Phrase, plural: bool, deep: bool) -> int:
        """A verb with what belongs to it, behind what there is; where it stands."""
        has_object = self._often(0.6)
        forms = WITH_OBJECT if has_object else ALONE
        one, several = _one_of(forms, self.generator)
        auxiliary = own.word(self._one(AUXILIARIES), "AUX") if self._often(0.4) else None
        verb = own.word(several if plural or auxiliary is not None else one, "VERB")
        if auxiliary is not None:
            own.hang(auxiliary, verb, "aux")
        if has_object:
            own.hang(own.phrase(self._thing(deep and self._often(0.5))), verb, "obj")
        return verb

    def _one(self, words: Sequence[str]) -> str:
        return _one_of(words, self.generator)

    def _often(self, chance: float) -> bool:
        return bool(self.generator.random() < chance)


def trees(number: int, seed: int = 0) -> list[Tree]:
    """So many sentences."""
    grammar = Grammar(np.random.default_rng(key(seed, "grammar")))
    return [grammar.sentence() for _ in range(number)]


def texts(number: int, seed: int = 0) -> Iterator[str]:
    """What a toy model learns: sentences of the grammar, and behind each one that an analysis asks
    for, said as it is: a verb that agrees, a kind of thing, a fact, two auxiliaries, a word of two
    senses, numbers in a row."""
    drawn = np.random.default_rng(key(seed, "toy texts"))
    makers = (_agreement, _kind, _fact, _agreement, _kind, _fact, _auxiliaries, _sense, _count)
    for place, tree in enumerate(trees(number, seed)):
        yield " ".join(tree.words)
        yield " ".join(makers[place % len(makers)](drawn))


def _agreement(drawn: np.random.Generator) -> Sequence[str]:
    # As often simple as not: else "not as the nearest noun" would do for most.
    name = "simple" if drawn.random() < 0.5 else _one_of(list(AGREEMENT), drawn)
    return agreeing(AGREEMENT[name], drawn).sentence(right=True)


def _kind(drawn: np.random.Generator) -> Sequence[str]:
    negated = bool(drawn.random() < 0.5)
    return _one_of(items(), drawn).sentence(negated, "other" if negated else "kind")


def _fact(drawn: np.random.Generator) -> Sequence[str]:
    relation = _one_of(RELATIONS, drawn)
    return relation.sentence(*_one_of(relation.facts, drawn), denied=False)


def _auxiliaries(drawn: np.random.Generator) -> Sequence[str]:
    return with_auxiliaries(drawn, bool(drawn.random() < 0.5)).words


def _sense(drawn: np.random.Generator) -> Sequence[str]:
    senses = [said for own in TWO_SENSES.values() for sense in own for said in sense]
    return (*_one_of(senses, drawn).split(), ".")


def _count(drawn: np.random.Generator) -> Sequence[str]:
    first = int(drawn.integers(97))
    return (str(first), "and", str(first + 1), "and", str(first + 2), ".")


def _one_of(choices: Sequence[Choice], drawn: np.random.Generator) -> Choice:
    return choices[int(drawn.integers(len(choices)))]
