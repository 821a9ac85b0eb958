"""Relevance of a text to a query, encoded in one sequence: a cross-encoder for ranking.

Pairs are trained independently (Nogueira and Cho 2019); metrics score the ranking of each query's
texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelKind, parse_number
from bertwright.tasks.metrics.ranking import RANKING_METRICS
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs, binary_logits
from bertwright.tasks.outputs.output_type import Activation, MetricFunction, location_of
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import sigmoid
from bertwright.tasks.outputs.windows import WindowedDecoder, WindowedOutput, WindowPooling


@dataclass(frozen=True)
class RelevanceDecoder(WindowedDecoder):
    """The decoder of :class:`RelevanceOutput`; ``max_label`` is scaled to 1."""

    max_label: float = 1.0

    def fit(self, examples: Sequence[Any]) -> Self:
        return replace(self, max_label=max([1.0, *(float(e.label) for e in examples)]))

    def targets(self, sequences: Sequence[TaskSequence], example: Any) -> list[float]:
        return [float(example.label) / self.max_label]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = outputs.squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        return loss, ((logits > 0) == (targets > 0.5)).sum()

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        return binary_logits(outputs)

    def decode_example(self, example: Example, parts: Sequence[SequenceOutputs]) -> Prediction:
        return Prediction(float(sigmoid(self.window_outputs(parts))[:, 0].mean()))


class RelevanceOutput(WindowedOutput):
    """The probability that the second text is relevant to the first: binary cross-entropy.

    Labels are numbers, 0 for irrelevant; they are divided by the highest training label. A long
    text with a ``stride`` is as relevant as its most relevant window.
    """

    kind: Literal["relevance"] = "relevance"
    window_pooling: WindowPooling = "max"
    activation: ClassVar[Activation | None] = "sigmoid"
    decoder_type: ClassVar[type[OutputDecoder]] = RelevanceDecoder
    label_kind: ClassVar[LabelKind] = "number"
    needs_pair: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, MetricFunction]] = RANKING_METRICS
    default_metrics: ClassVar[tuple[str, ...]] = ("ndcg@10", "mrr@10", "recall@1")

    def validate_example(self, example: Example) -> None:
        label = 0.0 if example.label is None else parse_number(location_of(example), example.label)
        if label < 0:
            raise UserError(
                f"{location_of(example)}: the label {label:g} is below 0, which means irrelevant: "
                f"use labels of 0 or more"
            )

    def group(self, example: Example) -> str:
        return example.text

    def metric_inputs(
        self, examples: Sequence[Any], predictions: Sequence[Prediction], for_ranking: bool
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return labels and scores grouped by query, the first text of the examples."""
        by_query: dict[str, list[tuple[float, Any]]] = {}
        for example, prediction in zip(examples, predictions, strict=True):
            pair = float(example.label), prediction.value
            by_query.setdefault(example.text, []).append(pair)
        queries = [np.array(pairs, np.float64).T for pairs in by_query.values()]
        return [labels for labels, _ in queries], [scores for _, scores in queries]
