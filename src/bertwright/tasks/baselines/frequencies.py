"""Baselines that look at no word around, or at none at all: what is most frequent."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, cast

from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines.baseline import Baseline, Matrix
from bertwright.tasks.formats.examples import Example, Examples, Options, TaggedWords
from bertwright.tasks.task import Task

TagPredictions = list[tuple[str, ...]]
"""For every sentence the tags of its words."""


def majority_tag(
    training: Iterable[TaggedWords], sentences: Sequence[TaggedWords]
) -> TagPredictions:
    """Return the most frequent tag of the training sentences, for every word."""
    return _tags(WordTags({}, _majority(training)), sentences)


def tag_of_word(
    training: Iterable[TaggedWords], sentences: Sequence[TaggedWords]
) -> TagPredictions:
    """Return the most frequent tag of each word in the training sentences; of all words for a new
    one."""
    return _tags(WordTags.fit([*training]), sentences)


@dataclass(frozen=True)
class Constant(Baseline):
    """One answer for everything: the most frequent class, tag or option, every label that most
    texts have or else the most frequent one, the mean number, or that there is no answer."""

    kind: ClassVar[str] = "constant"
    answer: Any
    name: str
    trained_on: int = 0

    @staticmethod
    def fit(task: Task, examples: Examples) -> "Constant | None":
        """Return the constant answer of a task; None where none is better than another."""
        number, kind = len(examples), task.answer.own_kind()
        labels = [label for e in examples for label in task.answer.labels_in(e)]
        match kind:
            case "class" | "cloze":
                return Constant(_most_frequent(Counter(labels)), "majority class", number)
            case "tags":
                tag = _most_frequent(Counter(labels))
                return Constant(tag, "most frequent tag", number)
            case "labels":
                counts = Counter(labels)
                frequent = tuple(sorted(label for label in counts if 2 * counts[label] > number))
                frequent = frequent or ((_most_frequent(counts),) if counts else ())
                return Constant(frequent, "most frequent labels", number)
            case "number":
                right = [cast(float, task.answer.reference(example)) for example in examples]
                return Constant(fmean(right), "mean of the numbers", number)
            case "option":
                places = Counter(str(cast(Options, example).label) for example in examples)
                return Constant(int(_most_frequent(places)), "most frequent place", number)
            case "span":
                return Constant("", "no answer", number)
            case _:
                return None

    def predict(
        self, examples: Examples, vectors: Sequence[Matrix] | None = None
    ) -> list[Prediction]:
        answer: Any = tuple(self.answer) if isinstance(self.answer, list | tuple) else self.answer
        return [
            Prediction((str(answer),) * len(e.words) if isinstance(e, TaggedWords) else answer)
            for e in examples
        ]


@dataclass(frozen=True)
class WordTags(Baseline):
    """The most frequent tag of each word, ``other`` for a word that training has not seen."""

    kind: ClassVar[str] = "word-tags"
    tags: dict[str, str]
    other: str
    name: str = "most frequent tag of each word"
    trained_on: int = 0

    @staticmethod
    def fit(examples: Sequence[TaggedWords]) -> "WordTags":
        """Count the tags of every word."""
        by_word: dict[str, Counter[str]] = {}
        for sentence in examples:
            for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
                by_word.setdefault(word, Counter())[tag] += 1
        other = _majority(examples)
        tags = {word: _most_frequent(counts) for word, counts in by_word.items()}
        # Words of the most frequent tag need no place in a folder.
        kept = {word: tag for word, tag in tags.items() if tag != other}
        return WordTags(kept, other, trained_on=len(examples))

    def predict(
        self, examples: Examples, vectors: Sequence[Matrix] | None = None
    ) -> list[Prediction]:
        return [Prediction(tags) for tags in _tags(self, cast(Sequence[TaggedWords], examples))]


def _tags(of: WordTags, sentences: Sequence[TaggedWords]) -> TagPredictions:
    return [tuple(of.tags.get(word, of.other) for word in sentence.words) for sentence in sentences]


def _majority(training: Iterable[TaggedWords]) -> str:
    return _most_frequent(Counter(tag for sentence in training for tag in sentence.tags or ()))


def _most_frequent(counts: Counter[str]) -> str:
    """Return what is counted most often; of equals the first in the alphabet."""
    return min(counts, key=lambda name: (-counts[name], name))


def is_paired(examples: Examples) -> bool:
    """Return whether examples are pairs of texts."""
    return bool(examples) and all(isinstance(e, Example) and e.second is not None for e in examples)
