"""Classes and numbers that a decoder answers in words (Raffel et al. 2020, section 2.4).

The encoder reads the name of the task with its texts, and the decoder generates the word of a class
or a number. Any other answer is wrong.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelKind, parse_class, parse_number
from bertwright.tasks.metrics.metrics import PEARSON, SPEARMAN
from bertwright.tasks.outputs.classification import ClassificationOutput
from bertwright.tasks.outputs.output_decoder import OutputDecoder
from bertwright.tasks.outputs.output_type import MetricFunction, location_of
from bertwright.tasks.outputs.prediction import PredictingModel
from bertwright.tasks.outputs.text.generated import GeneratedDecoder, GeneratedOutput


@dataclass(frozen=True)
class ClassInWordsDecoder(GeneratedDecoder):
    """The decoder of :class:`ClassInWordsOutput`."""

    config: "ClassInWordsOutput"

    def target_text(self, example: Example) -> str | None:
        label = self.config.reference(example)
        return None if label is None else self.config.words.get(label, label)

    def value_of(self, text: str, model: PredictingModel) -> str:
        """Return the class of a word; any other answer is quoted, so that it equals no class."""
        tokenizer = model.tokenizer
        words = {label: self.config.words.get(label, label) for label in self.labels}
        # Words as the tokenizer spells them: it may change case or spaces.
        by_text = {tokenizer.decode(tokenizer.encode(word)).strip(): n for n, word in words.items()}
        return by_text.get(text, json.dumps(text, ensure_ascii=False))


class ClassInWordsOutput(GeneratedOutput):
    """One of several classes, answered with its word.

    ``words`` maps classes to words; by default a class is its own word.
    """

    kind: Literal["class-in-words"] = "class-in-words"
    max_target_length: int = Field(default=16, ge=2, le=1 << 16)
    words: dict[str, str] = Field(default_factory=dict[str, str])
    has_labels: ClassVar[bool] = True
    decoder_type: ClassVar[type[OutputDecoder]] = ClassInWordsDecoder
    metrics: ClassVar[Mapping[str, MetricFunction]] = ClassificationOutput.metrics
    default_metrics: ClassVar[tuple[str, ...]] = ClassificationOutput.default_metrics

    def build_decoder(self, labels: Sequence[str], temperature: float = 1.0) -> OutputDecoder:
        if labels and (unknown := next((n for n in self.words if n not in labels), None)):
            raise UserError(
                f"output_type.words: no label {unknown!r}{did_you_mean(unknown, labels)}"
            )
        words = [self.words.get(label, label) for label in labels]
        if twice := next((word for word in words if words.count(word) > 1), None):
            raise UserError(
                f"output_type.words: two labels have the word {twice!r}: give each another"
            )
        return super().build_decoder(labels, temperature)

    def reference(self, example: Example) -> str | None:
        return None if example.label is None else parse_class(location_of(example), example.label)

    def labels_in(self, example: Example) -> Sequence[str]:
        label = self.reference(example)
        return () if label is None else (label,)


@dataclass(frozen=True)
class NumberInWordsDecoder(GeneratedDecoder):
    """The decoder of :class:`NumberInWordsOutput`."""

    config: "NumberInWordsOutput"

    def target_text(self, example: Example) -> str | None:
        number, step = self.config.reference(example), self.config.step
        return None if number is None else f"{round(number / step) * step:.{self.config.digits}f}"

    def value_of(self, text: str, model: PredictingModel) -> float:
        # Digits as the tokenizer spells them: it may put spaces around a point or a sign.
        joined, tokenizer = "".join(text.split()), model.tokenizer
        if tokenizer.decode(tokenizer.encode(joined)).strip() == text:
            text = joined
        try:
            return parse_number("", text)
        except UserError:
            return self.config.invalid


class NumberInWordsOutput(GeneratedOutput):
    """A number, answered in digits and rounded to multiples of ``step``.

    An answer that is no number counts as ``invalid``, which lies below all labels. The defaults are
    T5's for STS-B (Raffel et al. 2020).
    """

    kind: Literal["number-in-words"] = "number-in-words"
    max_target_length: int = Field(default=16, ge=2, le=1 << 16)
    step: float = Field(default=0.2, gt=0)
    digits: int = Field(default=1, ge=0, le=9)
    invalid: float = -1.0
    label_kind: ClassVar[LabelKind] = "number"
    decoder_type: ClassVar[type[OutputDecoder]] = NumberInWordsDecoder
    metrics: ClassVar[Mapping[str, MetricFunction]] = {"spearman": SPEARMAN, "pearson": PEARSON}
    default_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def reference(self, example: Any) -> float | None:
        return None if example.label is None else parse_number(location_of(example), example.label)
