"""How relevant a text is to a query, read together in one row: a cross-encoder, which ranks.

Trained for each pair by itself (Nogueira and Cho 2019); scored by the order in which the texts of
each query come out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertwright.errors import UserError
from bertwright.tasks.answers.answer import (
    Answer,
    Answering,
    Floats,
    Metric,
    Prediction,
    by_order,
    sigmoid,
    told,
    whether,
)
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.formats.labels import finite_number
from bertwright.tasks.rankings import RANKINGS, Ranked


class RelevanceAnswer(Answer):
    """A probability that the second text is what the first asks for: binary cross-entropy.

    Labels are numbers, 0 for what is not relevant, and are divided by the highest of the training
    examples.
    """

    kind: Literal["relevance"] = "relevance"
    metrics: ClassVar[Mapping[str, Metric]] = dict.fromkeys(RANKINGS, by_order)
    usual_metrics: ClassVar[tuple[str, ...]] = ("ndcg@10", "mrr@10", "recall@1")

    def shapes(self) -> tuple[type, ...]:
        return (Example,)

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[Example], examples):
            label = 0.0 if example.label is None else finite_number(told(example), example.label)
            if label < 0:
                raise UserError(
                    f"{told(example)}: the label {label:g} is below 0, which stands for what is "
                    f"not relevant at all: let the labels begin there"
                )

    def group(self, example: Example) -> str:
        return example.first

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "RelevanceAnswering":
        return RelevanceAnswering()

    def score(
        self, metrics: Sequence[str], examples: Examples, predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        queries = self.queries(examples, predictions)
        for name in metrics:
            self.metric(name)
        return {name: RANKINGS[name](queries) for name in metrics}

    def queries(self, examples: Examples, predictions: Sequence[Prediction]) -> list[Ranked]:
        """Return the texts of every query, which stand first in its examples."""
        by_query: dict[str, list[tuple[float, float]]] = {}
        for example, prediction in zip(cast(Sequence[Example], examples), predictions, strict=True):
            pair = float(cast(float, example.label)), float(cast(float, prediction.answer))
            by_query.setdefault(example.first, []).append(pair)
        return [Ranked(*np.array(pairs, np.float64).T) for pairs in by_query.values()]


@dataclass(frozen=True)
class RelevanceAnswering(Answering):
    """Of :class:`RelevanceAnswer`; ``highest`` is the label that counts as 1."""

    highest: float = 1.0

    def fitted(self, examples: Examples) -> "RelevanceAnswering":
        labels = [float(cast(float, e.label)) for e in cast(Sequence[Example], examples)]
        return replace(self, highest=max([1.0, *labels]))

    def targets(self, rows: Sequence[TaskRow], example: Example) -> list[float]:
        return [float(cast(float, example.label)) / self.highest]

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        said = outputs.squeeze(1)
        loss = F.binary_cross_entropy_with_logits(said, targets, reduction="sum")
        return loss, ((said > 0) == (targets > 0.5)).sum()

    def logits(self, outputs: Tensor, sizes: Sequence[int]) -> Tensor:
        return whether(outputs)

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        return [Prediction(float(sigmoid(output)[0, 0])) for output in outputs]
