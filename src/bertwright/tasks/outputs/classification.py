"""Outputs for a text or a pair: a class, several classes, or a number.

A long text is truncated or, with a ``stride``, split into windows.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelKind, label_names, parse_class, parse_number
from bertwright.tasks.metrics import metrics
from bertwright.tasks.metrics.metrics import label_metric
from bertwright.tasks.outputs.output_decoder import (
    OutputDecoder,
    SequenceOutputs,
    binary_logits,
    cross_entropy,
)
from bertwright.tasks.outputs.output_type import (
    Activation,
    MetricFunction,
    OutputType,
    location_of,
)
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import (
    FloatArray,
    mean_sigmoid_logits,
    mean_softmax_logits,
    sigmoid,
    softmax,
)
from bertwright.tasks.outputs.windows import WindowedDecoder, WindowedOutput

LabelCounts = NDArray[np.float64]


class SequenceOutput(WindowedOutput):
    """Labels or a number for whole texts."""


class WeightedOutput(SequenceOutput):
    """Labels with loss weights.

    ``weights`` is ``balanced``, which gives rare labels as much total weight as frequent ones, or a
    mapping from labels to weights, with default 1.
    """

    weights: Literal["balanced"] | dict[str, Annotated[float, Field(ge=0)]] | None = None
    has_labels: ClassVar[bool] = True
    can_calibrate: ClassVar[bool] = True

    def build_decoder(self, labels: Sequence[str], temperature: float = 1.0) -> OutputDecoder:
        for name in self.weights if isinstance(self.weights, dict) and labels else ():
            if name not in labels:
                raise UserError(
                    f"output_type.weights: no label {name!r}{did_you_mean(name, labels)}"
                )
        return super().build_decoder(labels, temperature)

    def for_prediction(self) -> OutputType:
        return self.model_copy(update={"weights": None})


@dataclass(frozen=True)
class _LabelDecoder(WindowedDecoder, ABC):
    """A decoder for labels; an empty ``label_weights`` means equal weights."""

    config: WeightedOutput
    label_weights: tuple[float, ...] = ()

    def fit(self, examples: Sequence[Example]) -> Self:
        weights = self.config.weights
        if weights is None:
            return self
        if isinstance(weights, dict):
            return replace(self, label_weights=tuple(weights.get(n, 1.0) for n in self.labels))
        counts = Counter(name for e in examples for name in self.config.labels_in(e))
        numbers = np.array([counts[name] for name in self.labels], np.float64)
        balanced = self._balanced_weights(numbers, len(examples))
        return replace(self, label_weights=tuple(balanced.tolist()))

    def decode_example(self, example: Example, parts: Sequence[SequenceOutputs]) -> Prediction:
        outputs = self.window_outputs(parts)
        uncalibrated, probabilities = (
            self._probabilities(outputs, temperature).mean(0)
            for temperature in (1.0, self.temperature)
        )
        by_label = dict(zip(self.labels, probabilities.tolist(), strict=True))
        return Prediction(self._predicted_value(uncalibrated), by_label)

    def _weight_tensor(self, device: torch.device) -> Tensor | None:
        return torch.tensor(self.label_weights, device=device) if self.label_weights else None

    @abstractmethod
    def _balanced_weights(self, counts: LabelCounts, num_examples: int) -> LabelCounts:
        """Return the weight of every label, (C,)."""

    @abstractmethod
    def _probabilities(self, outputs: FloatArray, temperature: float) -> FloatArray:
        """Return the probabilities (N, C) of outputs (N, K)."""

    @abstractmethod
    def _predicted_value(self, probabilities: FloatArray) -> str | tuple[str, ...]:
        """Return the prediction, which depends only on uncalibrated probabilities."""


class ClassificationDecoder(_LabelDecoder):
    """The decoder of :class:`ClassificationOutput`."""

    def targets(self, sequences: Sequence[TaskSequence], example: Example) -> list[int]:
        return [self.labels.index(str(self.config.reference(example)))]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        return cross_entropy(outputs, targets, self._weight_tensor(outputs.device))

    def decisions(self, parts: Sequence[SequenceOutputs]) -> Sequence[FloatArray]:
        return [self.window_outputs(parts)]

    def decision_targets(self, example: Example) -> Sequence[int | None]:
        label = str(self.config.reference(example))
        return [self.labels.index(label) if label in self.labels else None]

    def average(self, outputs: Sequence[FloatArray]) -> FloatArray:
        return mean_softmax_logits(outputs)

    def _balanced_weights(self, counts: LabelCounts, num_examples: int) -> LabelCounts:
        return counts.sum() / np.maximum(counts, 1) / max(int((counts > 0).sum()), 1)

    def _probabilities(self, outputs: FloatArray, temperature: float) -> FloatArray:
        return softmax(outputs, temperature)

    def _predicted_value(self, probabilities: FloatArray) -> str:
        return self.labels[int(probabilities.argmax())]


class ClassificationOutput(WeightedOutput):
    """One of several classes, trained with weighted cross-entropy."""

    kind: Literal["class"] = "class"
    activation: ClassVar[Activation | None] = "softmax"
    has_prediction_sets: ClassVar[bool] = True
    decoder_type: ClassVar[type[OutputDecoder]] = ClassificationDecoder
    metrics: ClassVar[Mapping[str, MetricFunction]] = {
        "accuracy": label_metric(metrics.accuracy),
        "macro-f1": label_metric(metrics.macro_f1),
        "micro-f1": label_metric(metrics.micro_f1),
        "positive-f1": label_metric(metrics.positive_f1),
        "matthews": label_metric(metrics.matthews),
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro-f1")

    @property
    def decides_before_calibration(self) -> bool:
        """True for a mean over windows, in which a temperature weights certain windows less."""
        return self.stride is not None and self.window_pooling == "mean"

    def reference(self, example: Example) -> str | None:
        return None if example.label is None else parse_class(location_of(example), example.label)

    def labels_in(self, example: Example) -> Sequence[str]:
        label = self.reference(example)
        return () if label is None else (label,)


@dataclass(frozen=True)
class MultiLabelDecoder(_LabelDecoder):
    """The decoder of :class:`MultiLabelOutput`."""

    config: "MultiLabelOutput"

    def targets(self, sequences: Sequence[TaskSequence], example: Example) -> list[float]:
        labels = self.config.labels_in(example)
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

    def decisions(self, parts: Sequence[SequenceOutputs]) -> Sequence[FloatArray]:
        """Return one binary decision per label."""
        columns = self.window_outputs(parts).T
        return [np.stack([np.zeros_like(logit), logit], 1) for logit in columns]

    def decision_targets(self, example: Example) -> Sequence[int | None]:
        return [int(target) for target in self.targets((), example)]

    def average(self, outputs: Sequence[FloatArray]) -> FloatArray:
        return mean_sigmoid_logits(outputs)

    def _balanced_weights(self, counts: LabelCounts, num_examples: int) -> LabelCounts:
        return np.maximum(num_examples - counts, 1) / np.maximum(counts, 1)

    def _probabilities(self, outputs: FloatArray, temperature: float) -> FloatArray:
        return sigmoid(outputs, temperature)

    def _predicted_value(self, probabilities: FloatArray) -> tuple[str, ...]:
        is_predicted = probabilities > self.config.threshold
        return tuple(np.array(self.labels, object)[is_predicted].tolist())


class MultiLabelOutput(WeightedOutput):
    """Any number of several classes, trained with binary cross-entropy.

    ``weights`` multiply the loss of positive examples. A class is predicted if its probability,
    before temperature scaling, is above ``threshold``.
    """

    kind: Literal["labels"] = "labels"
    threshold: float = Field(default=0.5, gt=0, lt=1)
    activation: ClassVar[Activation | None] = "sigmoid"
    decoder_type: ClassVar[type[OutputDecoder]] = MultiLabelDecoder
    label_kind: ClassVar[LabelKind] = "labels"
    min_labels: ClassVar[int] = 1
    metrics: ClassVar[Mapping[str, MetricFunction]] = {
        "micro-f1": label_metric(metrics.micro_f1, "labels"),
        "macro-f1": label_metric(metrics.macro_f1, "labels"),
        "exact": metrics.SUBSET_ACCURACY,
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("micro-f1", "macro-f1", "exact")

    @property
    def decides_before_calibration(self) -> bool:
        return True

    def reference(self, example: Example) -> tuple[str, ...] | None:
        return None if example.label is None else label_names(location_of(example), example.label)

    def labels_in(self, example: Example) -> Sequence[str]:
        return self.reference(example) or ()


@dataclass(frozen=True)
class RegressionDecoder(WindowedDecoder):
    """The decoder of :class:`RegressionOutput`."""

    mean: float = 0.0
    std: float = 1.0

    def fit(self, examples: Sequence[Any]) -> Self:
        numbers = [float(example.label) for example in examples]
        return replace(self, mean=float(np.mean(numbers)), std=float(np.std(numbers)) or 1.0)

    def targets(self, sequences: Sequence[TaskSequence], example: Any) -> list[float]:
        return [(float(example.label) - self.mean) / self.std]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        error = outputs.squeeze(1) - targets
        return error.square().sum(), error.new_zeros(())

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> None:
        return None

    def decode_example(self, example: Example, parts: Sequence[SequenceOutputs]) -> Prediction:
        return Prediction(float(self.window_outputs(parts)[:, 0].mean()))

    def average(self, outputs: Sequence[FloatArray]) -> FloatArray:
        return np.mean(outputs, axis=0)

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


class RegressionOutput(SequenceOutput):
    """A number, trained with squared error on standardised labels."""

    kind: Literal["number"] = "number"
    has_prediction_sets: ClassVar[bool] = True
    decoder_type: ClassVar[type[OutputDecoder]] = RegressionDecoder
    label_kind: ClassVar[LabelKind] = "number"
    metrics: ClassVar[Mapping[str, MetricFunction]] = {
        "spearman": metrics.SPEARMAN,
        "pearson": metrics.PEARSON,
        "negative-mean-squared-error": metrics.NEGATIVE_MEAN_SQUARED_ERROR,
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def reference(self, example: Example) -> float | None:
        return None if example.label is None else parse_number(location_of(example), example.label)
