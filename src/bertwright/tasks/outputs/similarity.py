"""Similarity of texts, measured between their vectors: a bi-encoder.

Every text is a sequence whose pooled hidden state is the output, without a classifier. If the head
pools the last layer by mean or first position, the vectors equal the result of ``embed``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelKind, parse_number
from bertwright.tasks.metrics.metrics import PEARSON, SPEARMAN
from bertwright.tasks.metrics.ranking import RANKING_METRICS
from bertwright.tasks.outputs.output_type import (
    FloatArray,
    MetricFunction,
    OutputDecoder,
    OutputType,
    Prediction,
    SequenceOutputs,
    location_of,
)


@dataclass(frozen=True, eq=False)
class PositivePairs:
    """The texts of N examples as integer ids, on the CPU.

    Attributes:
        anchors: (N,) int64, id of each example's first text.
        candidates: for each example, the ids of its second text and of its negatives.
        pairs: (P,) int64, sorted: anchor x number of texts + second text, for every example.
        num_texts: number of texts in all examples together.
    """

    anchors: Tensor
    candidates: Sequence[Sequence[int]]
    pairs: Tensor
    num_texts: int

    @staticmethod
    def from_examples(examples: Sequence[Example]) -> "PositivePairs":
        """Return the pairs from examples whose two texts match."""
        numbers: dict[str | None, int] = {}

        def number(text: str | None) -> int:
            return numbers.setdefault(text, len(numbers))

        anchors = torch.tensor([number(e.text) for e in examples], dtype=torch.int64)
        candidates = [[number(text) for text in (e.pair, *e.negatives)] for e in examples]
        seconds = torch.tensor([texts[0] for texts in candidates], dtype=torch.int64)
        pairs = (anchors * len(numbers) + seconds).unique()
        return PositivePairs(anchors, candidates, pairs, len(numbers))

    def positive_mask(self, example_indices: Tensor) -> Tensor:
        """Return which candidates of a step match each anchor: (B, C) bool.

        example_indices: (B,) int64. The second texts come before all negatives.
        """
        candidates = [self.candidates[index] for index in example_indices.tolist()]
        texts = [c[0] for c in candidates] + [text for c in candidates for text in c[1:]]
        anchors = self.anchors[example_indices.cpu()]
        pairs = anchors[:, None] * self.num_texts + torch.tensor(texts, dtype=torch.int64)
        return torch.isin(pairs, self.pairs).to(example_indices.device)


@dataclass(frozen=True)
class SimilarityDecoder(OutputDecoder):
    """The decoder of :class:`SimilarityOutput`."""

    config: "SimilarityOutput"
    positive_pairs: PositivePairs | None = None

    @property
    def num_outputs(self) -> int:
        return 0

    def fit(self, examples: Sequence[Example]) -> Self:
        if self.config.loss != "in-batch":
            return self
        return replace(self, positive_pairs=PositivePairs.from_examples(examples))

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[Example]
    ) -> list[TaskSequence]:
        texts: list[Example] = []
        indices: list[int] = []
        for index, example in enumerate(examples):
            example_texts = [t for t in example.texts if t is not None] + [*example.negatives]
            texts += [Example(text) for text in example_texts]
            indices += [index] * len(example_texts)
        return example_encoder.encode(texts, example_indices=indices)

    def targets(
        self, sequences: Sequence[TaskSequence], example: Example
    ) -> list[float] | list[int]:
        """Return the similarity; for ``in-batch``, the example index, to look up matches."""
        if self.config.loss == "in-batch":
            return [sequences[0].example_index]
        label = self.config.reference(example)
        assert label is not None, "training examples have labels"
        return [label / self.config.max_label]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        full_width = outputs.shape[1]
        if too_wide := next((w for w in self.config.matryoshka_dims if w > full_width), None):
            raise UserError(
                f"output_type.matryoshka_dims: {too_wide} is more than the {full_width} dimensions "
                f"of a vector: choose less"
            )
        widths = [full_width, *self.config.matryoshka_dims]
        losses = [
            self._loss_at_width(outputs[:, :width], output_lengths, targets) for width in widths
        ]
        total = torch.stack([loss for loss, _ in losses]).mean()
        return total, losses[0][1]

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> None:
        return None

    def comparable_outputs(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        """Return the cosines between the first text of each item and its other texts."""
        items = (F.normalize(item, dim=1) for item in outputs.split(list(output_lengths)))
        return torch.cat([item[1:] @ item[0] for item in items]).unsqueeze(1)

    def _loss_at_width(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        unit = F.normalize(outputs, dim=1)
        start = torch.tensor([0, *np.cumsum(output_lengths)[:-1].tolist()], device=outputs.device)
        first, second = unit[start], unit[start + 1]
        positive = (first * second).sum(1)
        if self.config.loss == "cosine":
            return (positive - targets).square().sum(), positive.new_zeros(())
        is_negative = torch.ones(len(unit), dtype=torch.bool, device=outputs.device)
        is_negative[start] = is_negative[start + 1] = False
        if self.config.loss == "in-batch":
            candidates = torch.cat((second, unit[is_negative]))
            labels = torch.arange(len(first), device=unit.device)
            assert self.positive_pairs is not None, "the decoder is fitted to the training examples"
            other_positives = self.positive_pairs.positive_mask(targets)
            other_positives[labels, labels] = False
            scores = (first @ candidates.T / self.config.contrastive_temperature).masked_fill(
                other_positives, -torch.inf
            )
            loss = F.cross_entropy(scores, labels, reduction="sum")
            return loss, (scores.argmax(1) == labels).sum()
        repeats = torch.tensor([size - 2 for size in output_lengths], device=outputs.device)
        item = torch.repeat_interleave(
            torch.arange(len(output_lengths), device=outputs.device), repeats
        )
        negative = (first[item] * unit[is_negative]).sum(1)
        losses = F.relu(self.config.margin + negative - positive[item]) / repeats[item]
        return losses.sum(), (negative < positive[item]).sum()

    def decode_example(self, example: Example, parts: Sequence[SequenceOutputs]) -> Prediction:
        vectors = np.concatenate([outputs for _, outputs in parts])
        if len(vectors) < 2:
            raise UserError("output type closeness compares two texts: give a pair")
        unit = _normalise(vectors[:2])
        return Prediction(float(unit[0] @ unit[1]), vectors=vectors)


class SimilarityOutput(OutputType):
    """The similarity of two texts: the cosine of their vectors.

    Attributes:
        loss: ``cosine`` is the squared error between the cosine and the label over ``max_label``
            (Reimers and Gurevych 2019). ``in-batch`` is cross-entropy of the second text among all
            second texts and negatives of a step (Henderson et al. 2017), except those that match
            the same anchor in any example. ``triplet`` is a hinge loss with ``margin``. The last
            two train on matching pairs: pairs without a label, or with a label of at least half of
            ``max_label``.
        max_label: the label of two texts with the same meaning.
        contrastive_temperature: divides the cosines of ``in-batch``.
        matryoshka_dims: smaller widths; the loss also trains the first dimensions of a vector up to
            each width, so that they can be used alone (Kusupati et al. 2022).
    """

    kind: Literal["closeness"] = "closeness"
    loss: Literal["cosine", "in-batch", "triplet"] = "cosine"
    max_label: float = Field(default=1.0, gt=0)
    contrastive_temperature: float = Field(default=0.05, gt=0)
    margin: float = Field(default=0.3, gt=0)
    matryoshka_dims: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = ()
    decoder_type: ClassVar[type[OutputDecoder]] = SimilarityDecoder
    label_kind: ClassVar[LabelKind] = "number"
    needs_pair: ClassVar[bool] = True
    is_grouped: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, MetricFunction]] = {
        "spearman": SPEARMAN,
        "pearson": PEARSON,
        **RANKING_METRICS,
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    @property
    def has_in_batch_negatives(self) -> bool:
        return self.loss == "in-batch"

    def validate_example(self, example: Example) -> None:
        if example.pair is None:
            raise UserError(
                f"{location_of(example)}: a second text is needed: name its column (pair)"
            )
        if self.loss == "triplet" and not example.negatives:
            raise UserError(
                f"{location_of(example)}: the loss triplet needs a third text, less similar to the "
                f"first: name its column (negative)"
            )
        if example.label is None:
            return
        label = parse_number(location_of(example), example.label)
        if self.loss == "cosine" and not 0 <= label <= self.max_label:
            raise UserError(
                f"{location_of(example)}: the label {label:g} is not from 0 to "
                f"{self.max_label:g}: set output_type.max_label to the label of equivalent texts"
            )

    def trainable_examples(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Return the matching pairs, for losses that treat all pairs as matching.

        Errors: UserError for labels on another scale, on which no texts would match.
        """
        if self.loss == "cosine":
            highest = max(float(example.label) for example in examples)
            if highest < self.max_label / 2:
                raise UserError(
                    f"the highest label is {highest:g}, but output_type.max_label, for equivalent "
                    f"texts, is {self.max_label:g}: set output_type.max_label to yours"
                )
            return examples
        positives = [
            example
            for example in examples
            if (label := self.reference(example)) is None or label >= self.max_label / 2
        ]
        if not positives:
            raise UserError(
                f"the loss {self.loss} trains on pairs whose label is {self.max_label / 2:g} or "
                f"more, half of output_type.max_label, and there is none: choose the loss cosine"
            )
        return positives

    def reference(self, example: Any) -> float | None:
        """Return the label; a pair without one matches, except with the loss ``cosine``."""
        if example.label is None:
            return None if self.loss == "cosine" else self.max_label
        return float(example.label)

    def metric_inputs(
        self, examples: Sequence[Any], predictions: Sequence[Prediction], for_ranking: bool
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return inputs; for rankings, each first text is a query that ranks all second texts."""
        if not for_ranking:
            return super().metric_inputs(examples, predictions, for_ranking)
        firsts: dict[str, FloatArray] = {}
        seconds: dict[str, FloatArray] = {}
        relevant: dict[str, dict[str, float]] = {}
        for example, prediction in zip(examples, predictions, strict=True):
            vectors, second = prediction.vectors, example.pair
            assert vectors is not None
            firsts[example.text] = vectors[0]
            seconds.update(zip((second, *example.negatives), vectors[1:], strict=True))
            labels = relevant.setdefault(example.text, {})
            labels[second] = max(labels.get(second, 0.0), self.reference(example) or 0.0)
        texts = list(seconds)
        pool = _normalise(np.stack([seconds[text] for text in texts])).T
        relevance = [
            np.array([relevant[query].get(text, 0.0) for text in texts]) for query in firsts
        ]
        scores = [
            (_normalise(vector[None])[0] @ pool).astype(np.float64) for vector in firsts.values()
        ]
        return relevance, scores


def _normalise(vectors: FloatArray) -> FloatArray:
    """Return vectors (N, D) scaled to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
