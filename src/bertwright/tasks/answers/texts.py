"""One answer for a text or a pair: a class, several classes, or a number.

A text that is longer than a row is cut, or with a ``stride`` read in windows: each is trained with
the answer of the whole, and what they say is averaged.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks import metrics
from bertwright.tasks.answers.answer import (
    Answer,
    Answering,
    Floats,
    Metric,
    Prediction,
    by_example,
    cross_entropy,
    sigmoid,
    softmax,
    told,
    whether,
)
from bertwright.tasks.calibration import Decision, Evidence
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.formats.labels import class_name, finite_number, names

Counts = NDArray[np.float64]


class TextAnswer(Answer):
    """The kinds of answers that a whole text has; ``stride`` pieces stand between the beginnings of
    two windows of a long one, None cuts it."""

    stride: int | None = Field(default=None, ge=1, le=1 << 20)

    @property
    def lacks_stride(self) -> bool:
        return self.stride is None

    def shapes(self) -> tuple[type, ...]:
        return (Example,)


class WeightedAnswer(TextAnswer):
    """Labels with ``weights``: ``balanced``, with what makes rare ones count as much as frequent
    ones, or a mapping with its numbers (1 for labels that it leaves out)."""

    weights: Literal["balanced"] | dict[str, Annotated[float, Field(ge=0)]] | None = None

    def require_weighted(self, labels: Sequence[str]) -> None:
        """UserError where a label has a weight that is none of these, unless none are known."""
        for name in self.weights if isinstance(self.weights, dict) and labels else ():
            if name not in labels:
                raise UserError(f"answer.weights: no label {name!r}{did_you_mean(name, labels)}")

    def scales(
        self, labels: Sequence[str], examples: Examples, balanced: Callable[[Counts], Counts]
    ) -> tuple[float, ...]:
        """The weights of labels, () for none; ``balanced`` are those of how often each occurs."""
        if self.weights is None:
            return ()
        if isinstance(self.weights, dict):
            return tuple(self.weights.get(name, 1.0) for name in labels)
        found = Counter(name for each in examples for name in self.labels_in(cast(Example, each)))
        return tuple(balanced(np.array([found[name] for name in labels], np.float64)).tolist())


class ClassAnswer(WeightedAnswer):
    """One of several classes: cross-entropy, of which ``weights`` multiply that of each class; a
    tie goes to the first label."""

    kind: Literal["class"] = "class"
    labelled: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": metrics.accuracy,
        "macro-f1": metrics.macro_f1,
        "micro-f1": metrics.micro_f1,
        "positive-f1": metrics.positive_f1,
        "matthews": metrics.matthews,
    }
    usual_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro-f1")

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "ClassAnswering":
        self.require_weighted(labels)
        return ClassAnswering(self, tuple(labels), temperature)

    def reference(self, example: Example) -> str | None:
        return None if example.label is None else class_name(told(example), example.label)

    def labels_in(self, example: Example) -> Sequence[str]:
        label = self.reference(example)
        return () if label is None else (label,)

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[Example], examples):
            self.reference(example)


class LabelsAnswer(WeightedAnswer):
    """Any number of several classes: binary cross-entropy of each, of which ``weights`` multiply
    that of the examples which have it.

    A class is said that is more probable than ``threshold``, before a temperature.
    """

    kind: Literal["labels"] = "labels"
    threshold: float = Field(default=0.5, gt=0, lt=1)
    labelled: ClassVar[bool] = True
    least_labels: ClassVar[int] = 1
    calibrated: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Metric]] = {
        "micro-f1": metrics.of_sets("micro"),
        "macro-f1": metrics.of_sets("macro"),
        "exact": metrics.exact_sets,
    }
    usual_metrics: ClassVar[tuple[str, ...]] = ("micro-f1", "macro-f1", "exact")

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "LabelsAnswering":
        self.require_weighted(labels)
        return LabelsAnswering(self, tuple(labels), temperature)

    def reference(self, example: Example) -> tuple[str, ...] | None:
        return None if example.label is None else names(told(example), example.label)

    def labels_in(self, example: Example) -> Sequence[str]:
        return self.reference(example) or ()

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[Example], examples):
            self.reference(example)


class NumberAnswer(TextAnswer):
    """One number: squared error, of numbers that training sees as (number - mean) / deviation."""

    kind: Literal["number"] = "number"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "spearman": metrics.spearman,
        "pearson": metrics.pearson,
        "negative-mean-squared-error": metrics.negative_mean_squared_error,
    }
    usual_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def reference(self, example: Example) -> float | None:
        return None if example.label is None else finite_number(told(example), example.label)

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[Example], examples):
            self.reference(example)

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "NumberAnswering":
        return NumberAnswering(self)


@dataclass(frozen=True)
class _InWindows(Answering):
    """Rows of texts, windows of one where the choice has a stride."""

    choice: TextAnswer

    def rows(self, maker: RowMaker, examples: Examples) -> list[TaskRow]:
        return maker.rows(examples, self.choice.stride)


@dataclass(frozen=True)
class ClassAnswering(_InWindows):
    """Of :class:`ClassAnswer`; ``scales`` are the weights of the labels, () for none."""

    labels: tuple[str, ...]
    temperature: float = 1.0
    scales: tuple[float, ...] = ()

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.labels)

    def fitted(self, examples: Examples) -> "ClassAnswering":
        def balanced(counts: Counts) -> Counts:
            return counts.sum() / np.maximum(counts, 1) / max(int((counts > 0).sum()), 1)

        choice = cast(ClassAnswer, self.choice)
        return replace(self, scales=choice.scales(self.labels, examples, balanced))

    def targets(self, rows: Sequence[TaskRow], example: Example) -> list[int]:
        return [self.labels.index(str(self.choice.reference(example)))]

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        scales = torch.tensor(self.scales, device=outputs.device) if self.scales else None
        return cross_entropy(outputs, targets, scales)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        return [
            self._prediction(
                np.mean([softmax(o)[0] for _, o in windows], 0),
                np.mean([softmax(o, self.temperature)[0] for _, o in windows], 0),
            )
            for windows in by_example(rows, outputs, len(examples))
        ]

    def evidence(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> Evidence:
        index = {label: number for number, label in enumerate(self.labels)}
        return Evidence.of(
            Decision(number, index[right], np.concatenate([output for _, output in windows]))
            for number, windows in enumerate(by_example(rows, outputs, len(examples)))
            if (right := str(self.choice.reference(examples[number]))) in index
        )

    def _prediction(self, deciding: Floats, chances: Floats) -> Prediction:
        # The mean over windows may have another highest under a temperature, which is to move
        # probabilities only.
        named = dict(zip(self.labels, chances.tolist(), strict=True))
        return Prediction(self.labels[int(deciding.argmax())], named)


@dataclass(frozen=True)
class LabelsAnswering(_InWindows):
    """Of :class:`LabelsAnswer`; ``scales`` are the weights of the labels, () for none."""

    labels: tuple[str, ...]
    temperature: float = 1.0
    scales: tuple[float, ...] = ()

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        return len(self.labels)

    def fitted(self, examples: Examples) -> "LabelsAnswering":
        def balanced(counts: Counts) -> Counts:
            return np.maximum(len(examples) - counts, 1) / np.maximum(counts, 1)

        choice = cast(LabelsAnswer, self.choice)
        return replace(self, scales=choice.scales(self.labels, examples, balanced))

    def targets(self, rows: Sequence[TaskRow], example: Example) -> list[float]:
        right = cast(tuple[str, ...], self.choice.reference(example))
        return [float(label in right) for label in self.labels]

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        wanted = targets.view_as(outputs)
        scales = torch.tensor(self.scales, device=outputs.device) if self.scales else None
        loss = F.binary_cross_entropy_with_logits(
            outputs, wanted, pos_weight=scales, reduction="sum"
        )
        return loss, ((outputs > 0) == (wanted > 0.5)).sum()

    def logits(self, outputs: Tensor, sizes: Sequence[int]) -> Tensor:
        return whether(outputs)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        return [
            self._prediction(
                np.mean([sigmoid(o)[0] for _, o in windows], 0),
                np.mean([sigmoid(o, self.temperature)[0] for _, o in windows], 0),
            )
            for windows in by_example(rows, outputs, len(examples))
        ]

    def evidence(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> Evidence:
        """Every label is a decision of its own: to say it or not."""
        found: list[Decision] = []
        for number, windows in enumerate(by_example(rows, outputs, len(examples))):
            right = self.targets((), cast(Example, examples[number]))
            said = np.concatenate([output for _, output in windows])
            for yes, target in zip(said.T, right, strict=True):
                both = np.stack([np.zeros_like(yes), yes], 1)
                found.append(Decision(number, int(target), both))
        return Evidence.of(found)

    def _prediction(self, deciding: Floats, chances: Floats) -> Prediction:
        named = dict(zip(self.labels, chances.tolist(), strict=True))
        # A threshold is one of what was trained, whatever temperature is found afterwards.
        said = deciding > cast(LabelsAnswer, self.choice).threshold
        return Prediction(tuple(np.array(self.labels, object)[said].tolist()), named)


@dataclass(frozen=True)
class NumberAnswering(_InWindows):
    """Of :class:`NumberAnswer`."""

    mean: float = 0.0
    deviation: float = 1.0

    def fitted(self, examples: Examples) -> "NumberAnswering":
        numbers = [float(cast(float, e.label)) for e in cast(Sequence[Example], examples)]
        return replace(self, mean=float(np.mean(numbers)), deviation=float(np.std(numbers)) or 1.0)

    def targets(self, rows: Sequence[TaskRow], example: Example) -> list[float]:
        return [(float(cast(float, example.label)) - self.mean) / self.deviation]

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        error = outputs.squeeze(1) - targets
        return error.square().sum(), error.new_zeros(())

    def logits(self, outputs: Tensor, sizes: Sequence[int]) -> None:
        return None

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        return [
            Prediction(float(np.mean([output[0, 0] for _, output in windows])))
            for windows in by_example(rows, outputs, len(examples))
        ]

    def as_trained(self, outputs: Tensor) -> Tensor:
        return (outputs - self.mean) / self.deviation

    @torch.no_grad()
    def fold_into(self, out: nn.Module) -> None:
        last: Any = out
        last.weight.mul_(self.deviation)
        last.bias.mul_(self.deviation).add_(self.mean)

    @torch.no_grad()
    def unfold_from(self, out: nn.Module) -> None:
        last: Any = out
        last.weight.div_(self.deviation)
        last.bias.sub_(self.mean).div_(self.deviation)
