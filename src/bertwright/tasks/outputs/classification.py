"""Outputs for a text or a pair: a class, several classes, or a number.

A long text is truncated or, with a ``stride``, split into windows: each is trained on the target of
the whole text, and their predictions are averaged.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.formats.labels import label_names, parse_class, parse_number
from bertwright.tasks.metrics import metrics
from bertwright.tasks.outputs.calibration import CalibrationData, CalibrationExample
from bertwright.tasks.outputs.output_type import (
    FloatArray,
    Metric,
    OutputDecoder,
    OutputType,
    Prediction,
    binary_logits,
    cross_entropy,
    group_by_example,
    location_of,
    sigmoid,
    softmax,
)

LabelCounts = NDArray[np.float64]


class SequenceOutput(OutputType):
    """Outputs for whole texts.

    ``stride`` is the number of tokens between the starts of two windows of a long text; None
    truncates it.
    """

    stride: int | None = Field(default=None, ge=1, le=1 << 20)

    @property
    def can_use_stride(self) -> bool:
        return self.stride is None

    def example_types(self) -> tuple[type, ...]:
        return (Example,)

    def validate_examples(self, examples: Examples) -> None:
        super().validate_examples(examples)
        for example in cast(Sequence[Example], examples):
            self.reference(example)


class WeightedOutput(SequenceOutput):
    """Labels with loss weights.

    ``weights`` is ``balanced``, so that rare labels count as much as frequent ones, or a mapping
    with default 1.
    """

    weights: Literal["balanced"] | dict[str, Annotated[float, Field(ge=0)]] | None = None

    def require_known_weights(self, labels: Sequence[str]) -> None:
        """Raise UserError for a weight of an unknown label."""
        for name in self.weights if isinstance(self.weights, dict) and labels else ():
            if name not in labels:
                raise UserError(
                    f"output_type.weights: no label {name!r}{did_you_mean(name, labels)}"
                )

    def label_weights(
        self,
        labels: Sequence[str],
        examples: Examples,
        balanced: Callable[[LabelCounts], LabelCounts],
    ) -> tuple[float, ...]:
        """Return label weights, () for none; ``balanced`` computes them from label counts."""
        if self.weights is None:
            return ()
        if isinstance(self.weights, dict):
            return tuple(self.weights.get(name, 1.0) for name in labels)
        counts = Counter(name for e in examples for name in self.labels_in(cast(Example, e)))
        return tuple(balanced(np.array([counts[name] for name in labels], np.float64)).tolist())


class ClassificationOutput(WeightedOutput):
    """One of several classes, trained with weighted cross-entropy."""

    kind: Literal["class"] = "class"
    has_labels: ClassVar[bool] = True
    can_calibrate: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": metrics.accuracy,
        "macro-f1": metrics.macro_f1,
        "micro-f1": metrics.micro_f1,
        "positive-f1": metrics.positive_f1,
        "matthews": metrics.matthews,
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro-f1")

    def build_decoder(
        self, labels: Sequence[str], temperature: float = 1.0
    ) -> "ClassificationDecoder":
        self.require_known_weights(labels)
        return ClassificationDecoder(self, tuple(labels), temperature)

    def reference(self, example: Example) -> str | None:
        return None if example.label is None else parse_class(location_of(example), example.label)

    def labels_in(self, example: Example) -> Sequence[str]:
        label = self.reference(example)
        return () if label is None else (label,)


class MultiLabelOutput(WeightedOutput):
    """Any number of several classes, trained with binary cross-entropy.

    ``weights`` multiply the loss of positive examples. A class is predicted above ``threshold``,
    before temperature scaling.
    """

    kind: Literal["labels"] = "labels"
    threshold: float = Field(default=0.5, gt=0, lt=1)
    has_labels: ClassVar[bool] = True
    min_labels: ClassVar[int] = 1
    can_calibrate: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Metric]] = {
        "micro-f1": metrics.multi_label_f1("micro"),
        "macro-f1": metrics.multi_label_f1("macro"),
        "exact": metrics.subset_accuracy,
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("micro-f1", "macro-f1", "exact")

    def build_decoder(self, labels: Sequence[str], temperature: float = 1.0) -> "MultiLabelDecoder":
        self.require_known_weights(labels)
        return MultiLabelDecoder(self, tuple(labels), temperature)

    def reference(self, example: Example) -> tuple[str, ...] | None:
        return None if example.label is None else label_names(location_of(example), example.label)

    def labels_in(self, example: Example) -> Sequence[str]:
        return self.reference(example) or ()


class RegressionOutput(SequenceOutput):
    """A number, trained with squared error on standardised labels."""

    kind: Literal["number"] = "number"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "spearman": metrics.spearman,
        "pearson": metrics.pearson,
        "negative-mean-squared-error": metrics.negative_mean_squared_error,
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def reference(self, example: Example) -> float | None:
        return None if example.label is None else parse_number(location_of(example), example.label)

    def build_decoder(self, labels: Sequence[str], temperature: float = 1.0) -> "RegressionDecoder":
        return RegressionDecoder(self)


@dataclass(frozen=True)
class _WindowedDecoder(OutputDecoder):
    """A decoder for texts, split into windows where a stride is set."""

    config: SequenceOutput

    def encode(self, example_encoder: ExampleEncoder, examples: Examples) -> list[TaskSequence]:
        return example_encoder.encode(examples, self.config.stride)


@dataclass(frozen=True)
class _LabelDecoder(_WindowedDecoder):
    """A decoder for labels; no ``label_weights`` means equal ones."""

    labels: tuple[str, ...]
    temperature: float = 1.0
    label_weights: tuple[float, ...] = ()

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.labels)

    def fit(self, examples: Examples) -> Self:
        def balanced(counts: LabelCounts) -> LabelCounts:
            return self._balanced_weights(counts, len(examples))

        config = cast(WeightedOutput, self.config)
        return replace(self, label_weights=config.label_weights(self.labels, examples, balanced))

    def decode(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> list[Prediction]:
        predictions: list[Prediction] = []
        for windows in group_by_example(sequences, outputs, len(examples)):
            uncalibrated, probabilities = (
                np.mean([self._probabilities(o, temperature)[0] for _, o in windows], 0)
                for temperature in (1.0, self.temperature)
            )
            by_label = dict(zip(self.labels, probabilities.tolist(), strict=True))
            predictions.append(Prediction(self._predicted_value(uncalibrated), by_label))
        return predictions

    def _weight_tensor(self, device: torch.device) -> Tensor | None:
        return torch.tensor(self.label_weights, device=device) if self.label_weights else None

    def _balanced_weights(self, counts: LabelCounts, num_examples: int) -> LabelCounts:
        raise NotImplementedError

    def _probabilities(self, outputs: FloatArray, temperature: float) -> FloatArray:
        raise NotImplementedError

    def _predicted_value(self, probabilities: FloatArray) -> str | tuple[str, ...]:
        """Return the prediction: it depends on uncalibrated probabilities only."""
        raise NotImplementedError


class ClassificationDecoder(_LabelDecoder):
    """The decoder of :class:`ClassificationOutput`."""

    def targets(self, sequences: Sequence[TaskSequence], example: Example) -> list[int]:
        return [self.labels.index(str(self.config.reference(example)))]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        return cross_entropy(outputs, targets, self._weight_tensor(outputs.device))

    def calibration_data(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> CalibrationData:
        index = {name: i for i, name in enumerate(self.labels)}
        return CalibrationData.from_examples(
            CalibrationExample(n, index[label], np.concatenate([output for _, output in windows]))
            for n, windows in enumerate(group_by_example(sequences, outputs, len(examples)))
            if (label := str(self.config.reference(examples[n]))) in index
        )

    def _balanced_weights(self, counts: LabelCounts, num_examples: int) -> LabelCounts:
        return counts.sum() / np.maximum(counts, 1) / max(int((counts > 0).sum()), 1)

    def _probabilities(self, outputs: FloatArray, temperature: float) -> FloatArray:
        return softmax(outputs, temperature)

    def _predicted_value(self, probabilities: FloatArray) -> str:
        return self.labels[int(probabilities.argmax())]


class MultiLabelDecoder(_LabelDecoder):
    """The decoder of :class:`MultiLabelOutput`."""

    def targets(self, sequences: Sequence[TaskSequence], example: Example) -> list[float]:
        labels = cast(tuple[str, ...], self.config.reference(example))
        return [float(label in labels) for label in self.labels]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        binary_targets = targets.view_as(outputs)
        weights = self._weight_tensor(outputs.device)
        loss = F.binary_cross_entropy_with_logits(
            outputs, binary_targets, pos_weight=weights, reduction="sum"
        )
        return loss, ((outputs > 0) == (binary_targets > 0.5)).sum()

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        return binary_logits(outputs)

    def calibration_data(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> CalibrationData:
        """Return one binary decision per label."""
        decisions: list[CalibrationExample] = []
        for index, windows in enumerate(group_by_example(sequences, outputs, len(examples))):
            targets = self.targets((), cast(Example, examples[index]))
            logits = np.concatenate([output for _, output in windows])
            for logit, target in zip(logits.T, targets, strict=True):
                binary = np.stack([np.zeros_like(logit), logit], 1)
                decisions.append(CalibrationExample(index, int(target), binary))
        return CalibrationData.from_examples(decisions)

    def _balanced_weights(self, counts: LabelCounts, num_examples: int) -> LabelCounts:
        return np.maximum(num_examples - counts, 1) / np.maximum(counts, 1)

    def _probabilities(self, outputs: FloatArray, temperature: float) -> FloatArray:
        return sigmoid(outputs, temperature)

    def _predicted_value(self, probabilities: FloatArray) -> tuple[str, ...]:
        is_predicted = probabilities > cast(MultiLabelOutput, self.config).threshold
        return tuple(np.array(self.labels, object)[is_predicted].tolist())


@dataclass(frozen=True)
class RegressionDecoder(_WindowedDecoder):
    """The decoder of :class:`RegressionOutput`."""

    mean: float = 0.0
    std: float = 1.0

    def fit(self, examples: Examples) -> "RegressionDecoder":
        numbers = [float(cast(float, e.label)) for e in cast(Sequence[Example], examples)]
        return replace(self, mean=float(np.mean(numbers)), std=float(np.std(numbers)) or 1.0)

    def targets(self, sequences: Sequence[TaskSequence], example: Example) -> list[float]:
        return [(float(cast(float, example.label)) - self.mean) / self.std]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        error = outputs.squeeze(1) - targets
        return error.square().sum(), error.new_zeros(())

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> None:
        return None

    def decode(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> list[Prediction]:
        return [
            Prediction(float(np.mean([output[0, 0] for _, output in windows])))
            for windows in group_by_example(sequences, outputs, len(examples))
        ]

    def to_training_scale(self, outputs: Tensor) -> Tensor:
        return (outputs - self.mean) / self.std

    @torch.no_grad()
    def fold_into(self, classifier: nn.Module) -> None:
        last: Any = classifier
        last.weight.mul_(self.std)
        last.bias.mul_(self.std).add_(self.mean)

    @torch.no_grad()
    def unfold_from(self, classifier: nn.Module) -> None:
        last: Any = classifier
        last.weight.div_(self.std)
        last.bias.sub_(self.mean).div_(self.std)
