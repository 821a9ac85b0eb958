"""Token classification: one tag per word, read at the first token of the word."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.formats.examples import Examples, TaggedSentence
from bertwright.tasks.metrics import metrics
from bertwright.tasks.metrics.entity_spans import are_word_tags, span_f1, tagging_scheme
from bertwright.tasks.outputs.calibration import CalibrationData, CalibrationExample
from bertwright.tasks.outputs.output_type import (
    FloatArray,
    Metric,
    OutputDecoder,
    OutputLevel,
    OutputType,
    Prediction,
    cross_entropy,
    group_by_example,
    location_of,
    softmax,
)


class TokenClassificationOutput(OutputType):
    """One of several tags for every word, trained with cross-entropy."""

    kind: Literal["tags"] = "tags"
    level: ClassVar[OutputLevel] = "token"
    has_labels: ClassVar[bool] = True
    allows_unseen_labels: ClassVar[bool] = True
    can_calibrate: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Metric]] = {
        "span-f1": span_f1,
        "accuracy": metrics.per_word(metrics.accuracy),
        "macro-f1": metrics.per_word(metrics.macro_f1),
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("span-f1", "accuracy")

    def example_types(self) -> tuple[type, ...]:
        return (TaggedSentence,)

    def build_decoder(
        self, labels: Sequence[str], temperature: float = 1.0
    ) -> "TokenClassificationDecoder":
        return TokenClassificationDecoder(tuple(labels), temperature)

    def reference(self, example: TaggedSentence) -> tuple[str, ...] | None:
        return example.tags

    def labels_in(self, example: TaggedSentence) -> Sequence[str]:
        return example.tags or ()

    def default_metrics_for(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Return per-word metrics for tags without spans, such as parts of speech."""
        return (
            ("accuracy", "macro-f1") if labels and are_word_tags(labels) else self.default_metrics
        )

    def require_metrics_defined(self, metrics: Sequence[str], labels: Iterable[str]) -> None:
        if "span-f1" in metrics:
            tagging_scheme(labels)

    def validate_examples(self, examples: Examples) -> None:
        super().validate_examples(examples)
        for example in cast(Sequence[TaggedSentence], examples):
            if example.tags is not None:
                _require_tags(example)


@dataclass(frozen=True)
class TokenClassificationDecoder(OutputDecoder):
    """The decoder of :class:`TokenClassificationOutput`."""

    labels: tuple[str, ...]
    temperature: float = 1.0

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.labels)

    def output_length(self, sequence: TaskSequence) -> int:
        return len(sequence.positions)

    def targets(self, sequences: Sequence[TaskSequence], example: TaggedSentence) -> list[int]:
        assert example.tags is not None, "training examples have tags"
        return [
            self.labels.index(tag)
            for s in sequences
            for tag in example.tags[s.first_word : s.first_word + len(s.positions)]
        ]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        return cross_entropy(outputs, targets)

    def decode(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> list[Prediction]:
        return [
            self._prediction([output for _, output in parts])
            for parts in group_by_example(sequences, outputs, len(examples))
        ]

    def calibration_data(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> CalibrationData:
        index = {label: i for i, label in enumerate(self.labels)}
        decisions: list[CalibrationExample] = []
        for sequence, output in zip(sequences, outputs, strict=True):
            example_index = sequence.example_index
            tags = cast(TaggedSentence, examples[example_index]).tags or ()
            for tag, logits in zip(tags[sequence.first_word :], output, strict=False):
                if tag in index:
                    decisions.append(CalibrationExample(example_index, index[tag], logits[None]))
        return CalibrationData.from_examples(decisions)

    def _prediction(self, outputs: Sequence[FloatArray]) -> Prediction:
        tags: list[str] = []
        tag_probabilities: list[float] = []
        for output in outputs:
            best, probabilities = output.argmax(1), softmax(output, self.temperature)
            tags += [self.labels[index] for index in best]
            tag_probabilities += probabilities[np.arange(len(best)), best].tolist()
        return Prediction(tuple(tags), tuple(tag_probabilities))


def _require_tags(example: TaggedSentence) -> None:
    """Raise UserError unless every word has a tag."""
    tags: Sequence[Any] = example.tags or ()
    if len(tags) != len(example.words):
        raise UserError(
            f"{location_of(example)}: {len(example.words)} words have {len(tags)} tags: give each "
            f"word one tag"
        )
    for word, tag in zip(example.words, tags, strict=True):
        if not isinstance(cast(Any, tag), str) or not tag.strip():
            raise UserError(f"{location_of(example)}: no tag for the word {word!r}, but {tag!r}")
