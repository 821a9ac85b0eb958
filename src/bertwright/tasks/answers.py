"""From the outputs of a head to losses and to answers as the files write them.

One class for each kind of answer, chosen by table: one class of a text, one number, one tag for
every word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertwright.tasks.encoding import Examples, TaskRow
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.tasks.task import Task

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """What a model says of one example.

    Attributes:
        answer: a label, a number, or one tag for every word.
        probabilities: for a label, of every label; for tags, of the tag given to each word.
    """

    answer: str | float | tuple[str, ...]
    probabilities: dict[str, float] | tuple[float, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as it stands in files of predictions."""
        said: dict[str, Any] = {"prediction": self.answer}
        if self.probabilities is not None:
            said["probabilities"] = self.probabilities
        return said


class Answers(Protocol):
    """How one kind of answer is trained and given."""

    def targets(self, row: TaskRow, example: Example | TaggedWords) -> list[float] | list[int]:
        """What a row is asked for: one target for a text, one for each of its words."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss and the number of right answers, of outputs (M, K), targets (M,)."""
        ...

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], num_examples: int
    ) -> list[Prediction]:
        """The answers to all examples; ``outputs`` has (k, K) for every row."""
        ...


@dataclass(frozen=True)
class ClassAnswers:
    """One of several labels: cross-entropy; a tie goes to the first label."""

    labels: tuple[str, ...]

    def targets(self, row: TaskRow, example: Example | TaggedWords) -> list[int]:
        assert isinstance(example, Example)
        return [self.labels.index(str(example.label))]

    def loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return _cross_entropy(outputs, targets)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], num_examples: int
    ) -> list[Prediction]:
        return [self._prediction(_softmax(output)[0]) for output in outputs]

    def _prediction(self, chances: Floats) -> Prediction:
        named = dict(zip(self.labels, chances.tolist(), strict=True))
        return Prediction(self.labels[int(chances.argmax())], named)


@dataclass(frozen=True)
class NumberAnswers:
    """One number: squared error, of numbers that training sees as (number - mean) / deviation."""

    mean: float = 0.0
    deviation: float = 1.0

    @staticmethod
    def of(examples: Examples) -> "NumberAnswers":
        """Scaled as the training examples are."""
        numbers = [float(e.label or 0.0) for e in examples if isinstance(e, Example)]
        return NumberAnswers(float(np.mean(numbers)), float(np.std(numbers)) or 1.0)

    def targets(self, row: TaskRow, example: Example | TaggedWords) -> list[float]:
        assert isinstance(example, Example)
        assert example.label is not None
        return [(float(example.label) - self.mean) / self.deviation]

    def loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        error = outputs.squeeze(1) - targets
        return error.square().sum(), error.new_zeros(())

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], num_examples: int
    ) -> list[Prediction]:
        return [Prediction(float(numbers[0, 0])) for numbers in outputs]

    @torch.no_grad()
    def fold_into(self, out: torch.nn.Linear) -> None:
        """Let the last layer say the number itself."""
        out.weight.mul_(self.deviation)
        out.bias.mul_(self.deviation).add_(self.mean)


@dataclass(frozen=True)
class TagAnswers:
    """One of several tags for every word, read at its first piece."""

    labels: tuple[str, ...]

    def targets(self, row: TaskRow, example: Example | TaggedWords) -> list[int]:
        assert isinstance(example, TaggedWords)
        assert example.tags is not None
        tags = example.tags[row.first_word : row.first_word + len(row.places)]
        return [self.labels.index(tag) for tag in tags]

    def loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return _cross_entropy(outputs, targets)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], num_examples: int
    ) -> list[Prediction]:
        tags: list[list[str]] = [[] for _ in range(num_examples)]
        chances: list[list[float]] = [[] for _ in range(num_examples)]
        for row, output in zip(rows, outputs, strict=True):
            found = _softmax(output)
            tags[row.example] += [self.labels[i] for i in found.argmax(1)]
            chances[row.example] += found.max(1, initial=0.0).tolist()
        return [Prediction(tuple(t), tuple(c)) for t, c in zip(tags, chances, strict=True)]


def answers_of(task: Task) -> Answers:
    """How the answers of a task whose labels are known are trained and given."""
    return {
        "class": lambda: ClassAnswers(task.labels),
        "number": NumberAnswers,
        "tags": lambda: TagAnswers(task.labels),
    }[task.answer]()


def num_outputs(task: Task) -> int:
    """The outputs that a head needs for a task."""
    return len(task.labels) or 1


def _cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    loss = F.cross_entropy(outputs, targets, reduction="sum")
    return loss, (outputs.argmax(1) == targets).sum()


def _softmax(outputs: Floats) -> Floats:
    powers = np.exp(outputs - outputs.max(1, initial=-np.inf, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
