"""One tag for every word of a sentence, read at the first piece of the word."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
from torch import Tensor

from bertwright.errors import UserError
from bertwright.tasks import metrics
from bertwright.tasks.answers.answer import (
    Answer,
    Answering,
    Floats,
    Metric,
    Prediction,
    Reads,
    by_example,
    cross_entropy,
    softmax,
    told,
)
from bertwright.tasks.calibration import Decision, Evidence
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.formats.examples import Examples, TaggedWords
from bertwright.tasks.spans import are_of_words, scheme_of, span_f1


class TagAnswer(Answer):
    """One of several tags for every word: cross-entropy of each."""

    kind: Literal["tags"] = "tags"
    reads: ClassVar[Reads] = "places"
    labelled: ClassVar[bool] = True
    open: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Metric]] = {
        "span-f1": span_f1,
        "accuracy": metrics.over_words(metrics.accuracy),
        "macro-f1": metrics.over_words(metrics.macro_f1),
    }
    usual_metrics: ClassVar[tuple[str, ...]] = ("span-f1", "accuracy")

    def shapes(self) -> tuple[type, ...]:
        return (TaggedWords,)

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "TagAnswering":
        return TagAnswering(tuple(labels), temperature)

    def reference(self, example: TaggedWords) -> tuple[str, ...] | None:
        return example.tags

    def labels_in(self, example: TaggedWords) -> Sequence[str]:
        return example.tags or ()

    def usual_for(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Of tags that are no spans, as parts of speech, those of every word."""
        return ("accuracy", "macro-f1") if labels and are_of_words(labels) else self.usual_metrics

    def require_scored(self, metrics: Sequence[str], labels: Iterable[str]) -> None:
        if "span-f1" in metrics:
            scheme_of(labels)

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[TaggedWords], examples):
            if example.tags is not None:
                _require_tags(example)


@dataclass(frozen=True)
class TagAnswering(Answering):
    """Of :class:`TagAnswer`."""

    labels: tuple[str, ...]
    temperature: float = 1.0

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.labels)

    def num_answers(self, row: TaskRow) -> int:
        return len(row.places)

    def targets(self, rows: Sequence[TaskRow], example: TaggedWords) -> list[int]:
        assert example.tags is not None, "what is trained on has tags"
        return [
            self.labels.index(tag)
            for row in rows
            for tag in example.tags[row.first_word : row.first_word + len(row.places)]
        ]

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        return cross_entropy(outputs, targets)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        return [
            self._prediction([output for _, output in parts])
            for parts in by_example(rows, outputs, len(examples))
        ]

    def evidence(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> Evidence:
        index = {label: number for number, label in enumerate(self.labels)}
        found: list[Decision] = []
        for row, output in zip(rows, outputs, strict=True):
            tags = cast(TaggedWords, examples[row.example]).tags or ()
            for tag, of_word in zip(tags[row.first_word :], output, strict=False):
                if tag in index:
                    found.append(Decision(row.example, index[tag], of_word[None]))
        return Evidence.of(found)

    def _prediction(self, parts: Sequence[Floats]) -> Prediction:
        tags: list[str] = []
        sure: list[float] = []
        for output in parts:
            best, chances = output.argmax(1), softmax(output, self.temperature)
            tags += [self.labels[number] for number in best]
            sure += chances[np.arange(len(best)), best].tolist()
        return Prediction(tuple(tags), tuple(sure))


def _require_tags(example: TaggedWords) -> None:
    """Refuse tags that are not one text for each word: UserError."""
    tags: Sequence[Any] = example.tags or ()
    if len(tags) != len(example.words):
        raise UserError(
            f"{told(example)}: {len(example.words)} words have {len(tags)} tags: give each word one"
        )
    for word, tag in zip(example.words, tags, strict=True):
        if not isinstance(cast(Any, tag), str) or not tag.strip():
            raise UserError(f"{told(example)}: no tag for the word {word!r}, but {tag!r}")
