"""A small language with known trees, on which the toy model is trained.

It has agreement across phrases and clauses, and sentences with two auxiliaries. Its words are those
of the analyses with their own sentences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from bertwright.analysis.behaviour.agreement import PARADIGMS as AGREEMENT
from bertwright.analysis.behaviour.agreement import PLURAL, PREPOSITIONS, SINGULAR, sample_pair
from bertwright.analysis.behaviour.facts import FACT_RELATIONS
from bertwright.analysis.behaviour.negation import negation_items
from bertwright.analysis.behaviour.word_substitution import PROPER_NAMES
from bertwright.analysis.geometry.sense_sentences import SENSE_SENTENCES
from bertwright.analysis.probing.main_auxiliary import sample_sentence
from bertwright.core.rng import stream_key
from bertwright.tasks.formats.dependency_trees import DependencyTree

Option = TypeVar("Option")

PEOPLE = (*PROPER_NAMES["women"][:6], *PROPER_NAMES["men"][:6])
DETERMINERS = ("the", "some", "my", "your")
ADJECTIVES = ("big", "small", "old", "young", "happy", "quiet")
AUXILIARIES = ("can", "could", "will", "would")
INTRANSITIVE_VERBS = (("sleeps", "sleep"), ("sings", "sing"), ("walks", "walk"), ("waits", "wait"))
TRANSITIVE_VERBS = (("sees", "see"), ("helps", "help"), ("likes", "like"), ("knows", "know"))


@dataclass
class Phrase:
    """A phrase with its tree under construction."""

    words: list[str] = field(default_factory=list[str])
    heads: list[int] = field(default_factory=list[int])
    relations: list[str] = field(default_factory=list[str])
    tags: list[str] = field(default_factory=list[str])
    root: int = 0
    plural: bool = False

    def add_word(self, word: str, tag: str) -> int:
        """Append a word without a head and return its index."""
        self.words.append(word)
        self.heads.append(-1)
        self.relations.append("root")
        self.tags.append(tag)
        return len(self.words) - 1

    def add_phrase(self, other: "Phrase") -> int:
        """Append a phrase and return the index of its root."""
        start = len(self.words)
        self.words += other.words
        self.heads += [start + head if head >= 0 else -1 for head in other.heads]
        self.relations += other.relations
        self.tags += other.tags
        return start + other.root

    def attach(self, word: int, head: int, relation: str) -> None:
        """Set the head of a word."""
        self.heads[word], self.relations[word] = head, relation


@dataclass(frozen=True)
class TreebankGrammar:
    """A random generator of sentences."""

    generator: np.random.Generator

    def sentence(self) -> DependencyTree:
        """Generate a subject, a verb phrase and a full stop."""
        phrase = Phrase()
        subject = self._noun_phrase(is_recursive=True)
        noun = phrase.add_phrase(subject)
        verb = self._add_verb_phrase(phrase, is_plural=subject.plural, is_recursive=True)
        phrase.attach(noun, verb, "nsubj")
        phrase.attach(phrase.add_word(".", "PUNCT"), verb, "punct")
        return DependencyTree(
            tuple(phrase.words), tuple(phrase.heads), tuple(phrase.relations), tuple(phrase.tags)
        )

    def _noun_phrase(self, is_recursive: bool) -> Phrase:
        """Generate a name or a noun; ``is_recursive`` allows a modifying phrase or clause."""
        if self._happens(0.1):
            return self._proper_name()
        phrase = Phrase(plural=self._happens(0.5))
        before = [(phrase.add_word(self._choose_word(DETERMINERS), "DET"), "det")]
        if self._happens(0.3):
            before.append((phrase.add_word(self._choose_word(ADJECTIVES), "ADJ"), "amod"))
        phrase.root = phrase.add_word(
            self._choose_word(PLURAL if phrase.plural else SINGULAR), "NOUN"
        )
        for word, relation in before:
            phrase.attach(word, phrase.root, relation)
        if is_recursive and self._happens(0.3):
            preposition = phrase.add_word(self._choose_word(PREPOSITIONS), "ADP")
            noun = phrase.add_phrase(self._noun_phrase(is_recursive=False))
            phrase.attach(preposition, noun, "case")
            phrase.attach(noun, phrase.root, "nmod")
        elif is_recursive and self._happens(0.3):
            who = phrase.add_word("who", "PRON")
            verb = self._add_verb_phrase(phrase, is_plural=phrase.plural, is_recursive=False)
            phrase.attach(who, verb, "nsubj")
            phrase.attach(verb, phrase.root, "acl")
        return phrase

    def _proper_name(self) -> Phrase:
        phrase = Phrase()
        phrase.root = phrase.add_word(self._choose_word(PEOPLE), "PROPN")
        return phrase

    def _add_verb_phrase(self, phrase: Phrase, is_plural: bool, is_recursive: bool) -> int:
        """Append a verb with its auxiliary and object and return its index."""
        has_object = self._happens(0.6)
        forms = TRANSITIVE_VERBS if has_object else INTRANSITIVE_VERBS
        singular, plural = _choose(forms, self.generator)
        auxiliary = (
            phrase.add_word(self._choose_word(AUXILIARIES), "AUX") if self._happens(0.4) else None
        )
        verb = phrase.add_word(plural if is_plural or auxiliary is not None else singular, "VERB")
        if auxiliary is not None:
            phrase.attach(auxiliary, verb, "aux")
        if has_object:
            phrase.attach(
                phrase.add_phrase(self._noun_phrase(is_recursive and self._happens(0.5))),
                verb,
                "obj",
            )
        return verb

    def _choose_word(self, words: Sequence[str]) -> str:
        return _choose(words, self.generator)

    def _happens(self, probability: float) -> bool:
        return bool(self.generator.random() < probability)


def sample_trees(num_sentences: int, seed: int = 0) -> list[DependencyTree]:
    """Sample sentences of the grammar."""
    grammar = TreebankGrammar(np.random.default_rng(stream_key(seed, "grammar")))
    return [grammar.sentence() for _ in range(num_sentences)]


def sample_texts(num_sentences: int, seed: int = 0) -> Iterator[str]:
    """Yield the training texts of the toy: grammar sentences and sentences of the analyses.

    The latter cover agreement, categories, facts, auxiliaries, word senses and numbers in turn.
    """
    drawn = np.random.default_rng(stream_key(seed, "toy texts"))
    makers = (
        _agreement_sentence,
        _category_sentence,
        _fact_sentence,
        _agreement_sentence,
        _category_sentence,
        _fact_sentence,
        _auxiliary_sentence,
        _sense_sentence,
        _counting_sentence,
    )
    for index, tree in enumerate(sample_trees(num_sentences, seed)):
        yield " ".join(tree.words)
        yield " ".join(makers[index % len(makers)](drawn))


def _agreement_sentence(generator: np.random.Generator) -> Sequence[str]:
    # Half are simple: otherwise "not the nearest noun" would be right for most.
    name = "simple" if generator.random() < 0.5 else _choose(list(AGREEMENT), generator)
    return sample_pair(AGREEMENT[name], generator).sentence(is_correct=True)


def _category_sentence(generator: np.random.Generator) -> Sequence[str]:
    negated = bool(generator.random() < 0.5)
    return _choose(negation_items(), generator).sentence(negated, "other" if negated else "kind")


def _fact_sentence(generator: np.random.Generator) -> Sequence[str]:
    relation = _choose(FACT_RELATIONS, generator)
    return relation.sentence(*_choose(relation.facts, generator), is_negated=False)


def _auxiliary_sentence(generator: np.random.Generator) -> Sequence[str]:
    return sample_sentence(generator, bool(generator.random() < 0.5)).words


def _sense_sentence(generator: np.random.Generator) -> Sequence[str]:
    sentences = [text for word in SENSE_SENTENCES.values() for sense in word for text in sense]
    return (*_choose(sentences, generator).split(), ".")


def _counting_sentence(generator: np.random.Generator) -> Sequence[str]:
    first = int(generator.integers(97))
    return (str(first), "and", str(first + 1), "and", str(first + 2), ".")


def _choose(options: Sequence[Option], generator: np.random.Generator) -> Option:
    return options[int(generator.integers(len(options)))]
