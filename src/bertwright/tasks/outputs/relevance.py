"""Relevance of a text to a query, both in one sequence: a cross-encoder for ranking.

Pairs are trained independently (Nogueira and Cho 2019); metrics score the ranking of the texts of
each query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.formats.labels import parse_number
from bertwright.tasks.metrics.ranking import RANKING_METRICS, RankedQuery
from bertwright.tasks.outputs.output_type import (
    FloatArray,
    Metric,
    OutputDecoder,
    OutputType,
    Prediction,
    binary_logits,
    location_of,
    ranking_metric_placeholder,
    sigmoid,
)


class RelevanceOutput(OutputType):
    """The probability that the second text is relevant to the first: binary cross-entropy.

    Labels are numbers, 0 for irrelevant, and are divided by the highest training label.
    """

    kind: Literal["relevance"] = "relevance"
    metrics: ClassVar[Mapping[str, Metric]] = dict.fromkeys(
        RANKING_METRICS, ranking_metric_placeholder
    )
    default_metrics: ClassVar[tuple[str, ...]] = ("ndcg@10", "mrr@10", "recall@1")

    def example_types(self) -> tuple[type, ...]:
        return (Example,)

    def validate_examples(self, examples: Examples) -> None:
        super().validate_examples(examples)
        for example in cast(Sequence[Example], examples):
            label = (
                0.0 if example.label is None else parse_number(location_of(example), example.label)
            )
            if label < 0:
                raise UserError(
                    f"{location_of(example)}: the label {label:g} is below 0, which means "
                    f"irrelevant: use labels of 0 or more"
                )

    def group(self, example: Example) -> str:
        return example.text

    def build_decoder(self, labels: Sequence[str], temperature: float = 1.0) -> "RelevanceDecoder":
        return RelevanceDecoder()

    def score(
        self, metrics: Sequence[str], examples: Examples, predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        queries = self.queries(examples, predictions)
        for name in metrics:
            self.metric(name)
        return {name: RANKING_METRICS[name](queries) for name in metrics}

    def queries(self, examples: Examples, predictions: Sequence[Prediction]) -> list[RankedQuery]:
        """Return the ranked texts of every query, the first text of its examples."""
        by_query: dict[str, list[tuple[float, float]]] = {}
        for example, prediction in zip(cast(Sequence[Example], examples), predictions, strict=True):
            pair = float(cast(float, example.label)), float(cast(float, prediction.value))
            by_query.setdefault(example.text, []).append(pair)
        return [RankedQuery(*np.array(pairs, np.float64).T) for pairs in by_query.values()]


@dataclass(frozen=True)
class RelevanceDecoder(OutputDecoder):
    """The decoder of :class:`RelevanceOutput`; ``max_label`` counts as 1."""

    max_label: float = 1.0

    def fit(self, examples: Examples) -> "RelevanceDecoder":
        labels = [float(cast(float, e.label)) for e in cast(Sequence[Example], examples)]
        return replace(self, max_label=max([1.0, *labels]))

    def targets(self, sequences: Sequence[TaskSequence], example: Example) -> list[float]:
        return [float(cast(float, example.label)) / self.max_label]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = outputs.squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        return loss, ((logits > 0) == (targets > 0.5)).sum()

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        return binary_logits(outputs)

    def decode(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> list[Prediction]:
        return [Prediction(float(sigmoid(output)[0, 0])) for output in outputs]
