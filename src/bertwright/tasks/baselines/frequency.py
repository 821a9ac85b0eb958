"""Baselines that predict the most frequent value."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, ClassVar

from bertwright.tasks.baselines.baseline import Features, TaskBaseline
from bertwright.tasks.formats.examples import Example, Examples, TaggedSentence
from bertwright.tasks.outputs import (
    ClassificationOutput,
    ClassInWordsOutput,
    MultiLabelOutput,
    MultipleChoiceOutput,
    NumberInWordsOutput,
    Prediction,
    RegressionOutput,
    SpanOutput,
    TokenClassificationOutput,
)
from bertwright.tasks.outputs.dependency_heads import ROOT
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class ConstantBaseline(TaskBaseline):
    """A constant prediction.

    It is the most frequent class, tag or option; the labels of more than half of the texts, or else
    the most frequent label; the mean number; or no answer.
    """

    kind: ClassVar[str] = "constant"
    value: Any
    name: str
    num_training_examples: int = 0

    @staticmethod
    def fit(task: Task, examples: Sequence[Any]) -> "ConstantBaseline | None":
        """Return the best constant of a task; None for output types that rank or compare texts."""
        number, output_type = len(examples), task.output_type
        counts = Counter(label for e in examples for label in output_type.labels_in(e))
        match output_type:
            case ClassificationOutput() | ClassInWordsOutput():
                return ConstantBaseline(_most_frequent(counts), "majority class", number)
            case TokenClassificationOutput():
                return ConstantBaseline(_most_frequent(counts), "most frequent tag", number)
            case MultiLabelOutput():
                frequent = tuple(sorted(label for label in counts if 2 * counts[label] > number))
                frequent = frequent or ((_most_frequent(counts),) if counts else ())
                return ConstantBaseline(frequent, "most frequent labels", number)
            case RegressionOutput() | NumberInWordsOutput():
                values: list[Any] = [output_type.reference(example) for example in examples]
                return ConstantBaseline(fmean(values), "mean of the numbers", number)
            case MultipleChoiceOutput():
                indices = Counter(str(example.label) for example in examples)
                index = int(_most_frequent(indices))
                return ConstantBaseline(index, "most frequent position", number)
            case SpanOutput():
                return ConstantBaseline("", "no answer", number)
            case _:
                return None

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        value: Any = tuple(self.value) if isinstance(self.value, list | tuple) else self.value
        return [
            Prediction((str(value),) * len(e.words) if isinstance(e, TaggedSentence) else value)
            for e in examples
        ]


@dataclass(frozen=True)
class CopyBaseline(TaskBaseline):
    """The source itself, for texts to generate: its first ``num_words`` words, as many as targets.

    For summaries, this is the baseline of the first sentences (Nallapati et al. 2016).
    """

    kind: ClassVar[str] = "copy"
    num_words: int
    name: str = "first words of the source"
    num_training_examples: int = 0

    @staticmethod
    def fit(task: Task, examples: Sequence[Any]) -> "CopyBaseline":
        """Take the median number of words of the targets."""
        targets: list[Any] = [task.output_type.reference(example) for example in examples]
        num_words = round(median(len(target.split()) for target in targets))
        return CopyBaseline(num_words, num_training_examples=len(examples))

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        return [Prediction(" ".join(e.text.split()[: self.num_words])) for e in examples]


@dataclass(frozen=True)
class WordTagBaseline(TaskBaseline):
    """The most frequent tag of each word; ``default_tag`` for unknown words."""

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
        default_tag = _most_frequent(Counter(tag for e in examples for tag in e.tags or ()))
        tags = {word: _most_frequent(counts) for word, counts in by_word.items()}
        # Words with the default tag need not be stored.
        kept = {word: tag for word, tag in tags.items() if tag != default_tag}
        return WordTagBaseline(kept, default_tag, num_training_examples=len(examples))

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        return [
            Prediction(tuple(self.tags.get(word, self.default_tag) for word in sentence.words))
            for sentence in examples
        ]


@dataclass(frozen=True)
class NeighbourHeadBaseline(TaskBaseline):
    """For dependency heads: the word at the most frequent distance; the root beyond the sentence.

    ``distance`` is the number of words from a word to its head.
    """

    kind: ClassVar[str] = "neighbour-head"
    distance: int
    name: str = "word at the most frequent distance"
    num_training_examples: int = 0

    @staticmethod
    def fit(examples: Sequence[TaggedSentence]) -> "NeighbourHeadBaseline":
        """Count the distances from words to their heads."""
        distances = Counter(
            str(int(head) - number)
            for sentence in examples
            for number, head in enumerate(sentence.tags or (), start=1)
            if head != ROOT
        )
        distance = int(_most_frequent(distances)) if distances else -1
        return NeighbourHeadBaseline(distance, num_training_examples=len(examples))

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        return [
            Prediction(
                tuple(
                    str(head) if 0 < head <= len(sentence.words) else ROOT
                    for head in range(1 + self.distance, len(sentence.words) + self.distance + 1)
                )
            )
            for sentence in examples
        ]


def _most_frequent(counts: Counter[str]) -> str:
    """Return the most frequent item; ties go to the alphabetically first."""
    return min(counts, key=lambda name: (-counts[name], name))


def are_pairs(examples: Examples) -> bool:
    """Return whether examples are text pairs."""
    return bool(examples) and all(isinstance(e, Example) and e.pair is not None for e in examples)
