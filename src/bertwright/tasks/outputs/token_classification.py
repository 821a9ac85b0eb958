"""Token classification: one tag per word, read at the first token of the word."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.metrics.entity_spans import are_word_tags, span_f1, tagging_scheme
from bertwright.tasks.metrics.metrics import accuracy, label_metric, macro_f1
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs
from bertwright.tasks.outputs.output_type import (
    Activation,
    MetricFunction,
    OutputLevel,
    OutputType,
    location_of,
)
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import FloatArray, mean_softmax_logits, softmax


@dataclass(frozen=True)
class TokenClassificationDecoder(OutputDecoder):
    """The decoder of :class:`TokenClassificationOutput`."""

    config: "TokenClassificationOutput"

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[TaggedSentence]
    ) -> list[TaskSequence]:
        return example_encoder.encode(examples, self.config.stride)

    def output_length(self, sequence: TaskSequence) -> int:
        return len(sequence.positions)

    def targets(self, sequences: Sequence[TaskSequence], example: TaggedSentence) -> list[int]:
        assert example.tags is not None, "training examples have tags"
        return [
            self.labels.index(tag)
            for s in sequences
            for tag in example.tags[s.first_word : s.first_word + len(s.positions)]
        ]

    def average(self, outputs: Sequence[FloatArray]) -> FloatArray:
        return mean_softmax_logits(outputs)

    def decisions(self, parts: Sequence[SequenceOutputs]) -> Sequence[FloatArray]:
        """Return one decision per word."""
        return [logits[None] for _, outputs in parts for logits in outputs]

    def decision_targets(self, example: TaggedSentence) -> Sequence[int | None]:
        index = {label: i for i, label in enumerate(self.labels)}
        return [index.get(tag) for tag in example.tags or ()]

    def decode_example(
        self, example: TaggedSentence, parts: Sequence[SequenceOutputs]
    ) -> Prediction:
        tags: list[str] = []
        tag_probabilities: list[float] = []
        for _, outputs in parts:
            best, probabilities = outputs.argmax(1), softmax(outputs, self.temperature)
            tags += [self.labels[index] for index in best]
            tag_probabilities += probabilities[np.arange(len(best)), best].tolist()
        return Prediction(tuple(tags), tuple(tag_probabilities))


class TokenClassificationOutput(OutputType):
    """One of several tags for every word, trained with cross-entropy.

    ``stride`` is the number of tokens between the starts of two windows of a long sentence; a word
    is tagged in the window with most context. With None, windows do not overlap.
    """

    kind: Literal["tags"] = "tags"
    stride: int | None = Field(default=None, ge=1, le=1 << 20)
    has_prediction_sets: ClassVar[bool] = True
    example_type: ClassVar[type] = TaggedSentence
    decoder_type: ClassVar[type[OutputDecoder]] = TokenClassificationDecoder
    level: ClassVar[OutputLevel] = "token"
    has_labels: ClassVar[bool] = True
    allows_unseen_labels: ClassVar[bool] = True
    can_calibrate: ClassVar[bool] = True
    activation: ClassVar[Activation | None] = "softmax"
    metrics: ClassVar[Mapping[str, MetricFunction]] = {
        "span-f1": span_f1,
        "accuracy": label_metric(accuracy, "words"),
        "macro-f1": label_metric(macro_f1, "words"),
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("span-f1", "accuracy")

    def reference(self, example: TaggedSentence) -> tuple[str, ...] | None:
        return example.tags

    def labels_in(self, example: TaggedSentence) -> Sequence[str]:
        return example.tags or ()

    def default_metrics_for(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Return per-word metrics for tags that do not form spans, such as parts of speech."""
        return (
            ("accuracy", "macro-f1") if labels and are_word_tags(labels) else self.default_metrics
        )

    def require_metrics_defined(self, metrics: Sequence[str], labels: Iterable[str]) -> None:
        if "span-f1" in metrics:
            tagging_scheme(labels)

    def validate_example(self, example: TaggedSentence) -> None:
        tags: Any = example.tags
        if tags is None:
            return
        if len(tags) != len(example.words):
            raise UserError(
                f"{location_of(example)}: {count_noun(len(tags), 'tag')} for "
                f"{count_noun(len(example.words), 'word')}: give each word one"
            )
        for word, tag in zip(example.words, tags, strict=True):
            if not (isinstance(tag, str) and tag.strip()):
                raise UserError(
                    f"{location_of(example)}: no tag for the word {word!r}, but {tag!r}"
                )
