"""Baselines that predict the most frequent value."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, cast

from bertwright.tasks.baselines.baseline import FloatMatrix, TaskBaseline
from bertwright.tasks.formats.examples import Example, Examples, MultipleChoice, TaggedSentence
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task

TagPredictions = list[tuple[str, ...]]
"""For every sentence the tags of its words."""


def majority_tags(
    training: Iterable[TaggedSentence], sentences: Sequence[TaggedSentence]
) -> TagPredictions:
    """Predict the most frequent tag of the training sentences for every word."""
    return _predict_tags(WordTagBaseline({}, _majority_tag(training)), sentences)


def most_frequent_word_tags(
    training: Iterable[TaggedSentence], sentences: Sequence[TaggedSentence]
) -> TagPredictions:
    """Predict the most frequent training tag of each word; of all words for a new one."""
    return _predict_tags(WordTagBaseline.fit([*training]), sentences)


@dataclass(frozen=True)
class ConstantBaseline(TaskBaseline):
    """A constant prediction.

    The most frequent class, tag or option; the labels of most texts or else the most frequent one;
    the mean number; or no answer.
    """

    kind: ClassVar[str] = "constant"
    value: Any
    name: str
    num_training_examples: int = 0

    @staticmethod
    def fit(task: Task, examples: Examples) -> "ConstantBaseline | None":
        """Return the best constant of a task; None where all are equal."""
        number, kind = len(examples), task.output_type.kind_name()
        labels = [label for e in examples for label in task.output_type.labels_in(e)]
        match kind:
            case "class" | "cloze":
                return ConstantBaseline(_most_frequent(Counter(labels)), "majority class", number)
            case "tags":
                tag = _most_frequent(Counter(labels))
                return ConstantBaseline(tag, "most frequent tag", number)
            case "labels":
                counts = Counter(labels)
                frequent = tuple(sorted(label for label in counts if 2 * counts[label] > number))
                frequent = frequent or ((_most_frequent(counts),) if counts else ())
                return ConstantBaseline(frequent, "most frequent labels", number)
            case "number":
                values = [cast(float, task.output_type.reference(example)) for example in examples]
                return ConstantBaseline(fmean(values), "mean of the numbers", number)
            case "option":
                indices = Counter(str(cast(MultipleChoice, example).label) for example in examples)
                index = int(_most_frequent(indices))
                return ConstantBaseline(index, "most frequent position", number)
            case "span":
                return ConstantBaseline("", "no answer", number)
            case _:
                return None

    def predict(
        self, examples: Examples, features: Sequence[FloatMatrix] | None = None
    ) -> list[Prediction]:
        value: Any = tuple(self.value) if isinstance(self.value, list | tuple) else self.value
        return [
            Prediction((str(value),) * len(e.words) if isinstance(e, TaggedSentence) else value)
            for e in examples
        ]


@dataclass(frozen=True)
class WordTagBaseline(TaskBaseline):
    """The most frequent tag of each word; ``default_tag`` for a new word."""

    kind: ClassVar[str] = "word-tags"
    tags: dict[str, str]
    default_tag: str
    name: str = "most frequent tag of each word"
    num_training_examples: int = 0

    @staticmethod
    def fit(examples: Sequence[TaggedSentence]) -> "WordTagBaseline":
        """Count the tags of every word."""
        by_word: dict[str, Counter[str]] = {}
        for sentence in examples:
            for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
                by_word.setdefault(word, Counter())[tag] += 1
        default_tag = _majority_tag(examples)
        tags = {word: _most_frequent(counts) for word, counts in by_word.items()}
        # Words with the default tag need not be stored.
        kept = {word: tag for word, tag in tags.items() if tag != default_tag}
        return WordTagBaseline(kept, default_tag, num_training_examples=len(examples))

    def predict(
        self, examples: Examples, features: Sequence[FloatMatrix] | None = None
    ) -> list[Prediction]:
        return [
            Prediction(tags)
            for tags in _predict_tags(self, cast(Sequence[TaggedSentence], examples))
        ]


def _predict_tags(baseline: WordTagBaseline, sentences: Sequence[TaggedSentence]) -> TagPredictions:
    return [
        tuple(baseline.tags.get(word, baseline.default_tag) for word in sentence.words)
        for sentence in sentences
    ]


def _majority_tag(training: Iterable[TaggedSentence]) -> str:
    return _most_frequent(Counter(tag for sentence in training for tag in sentence.tags or ()))


def _most_frequent(counts: Counter[str]) -> str:
    """Return the most frequent item; on ties the first in the alphabet."""
    return min(counts, key=lambda name: (-counts[name], name))


def are_pairs(examples: Examples) -> bool:
    """Return whether examples are text pairs."""
    return bool(examples) and all(isinstance(e, Example) and e.pair is not None for e in examples)
