"""Texts that match, encoded apart: the losses that all representations of texts share.

A representation is a dense vector (``similarity``), the weights of tokens (``sparse``) or a vector
for every token (``late_interaction``); each defines the score of two texts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.models.retrieval_encoder import TextVectors
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelKind, parse_number
from bertwright.tasks.metrics.ranking import RANKING_METRICS
from bertwright.tasks.outputs.output_decoder import OutputDecoder
from bertwright.tasks.outputs.output_type import MetricFunction, OutputType, location_of
from bertwright.tasks.outputs.prediction import PredictingModel, Prediction
from bertwright.tasks.outputs.vectors.text_vectors import score_matrix, stack_vectors

MatchingLoss = Literal["cosine", "in-batch", "triplet", "margin-mse"]


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
class MatchingDecoder(OutputDecoder):
    """The decoder of :class:`MatchingOutput`: outputs (M, ...) hold one text in each row."""

    config: "MatchingOutput"
    positive_pairs: PositivePairs | None = None

    def fit(self, examples: Sequence[Example]) -> Self:
        if self.config.loss != "in-batch":
            return self
        return replace(self, positive_pairs=PositivePairs.from_examples(examples))

    def targets(
        self, sequences: Sequence[TaskSequence], example: Example
    ) -> list[float] | list[int]:
        """Return the label; for ``in-batch``, the example index, to look up matches."""
        if self.config.loss == "in-batch":
            return [sequences[0].example_index]
        label = self.config.training_label(example)
        assert label is not None, "training examples have labels"
        return [label]

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> None:
        return None

    def pair_scores(self, firsts: Tensor, seconds: Tensor) -> Tensor:
        """Return the scores (N,) of aligned texts (N, ...)."""
        return (firsts * seconds).sum(1)

    def scores(self, firsts: Tensor, seconds: Tensor) -> Tensor:
        """Return the scores (A, B) of texts (A, ...) with texts (B, ...)."""
        return firsts @ seconds.T

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of texts (M, ...): of each item the first text, the second, negatives."""
        start = torch.tensor([0, *np.cumsum(output_lengths)[:-1].tolist()], device=outputs.device)
        first, second = outputs[start], outputs[start + 1]
        is_negative = torch.ones(len(outputs), dtype=torch.bool, device=outputs.device)
        is_negative[start] = is_negative[start + 1] = False
        if self.config.loss == "in-batch":
            return self._in_batch_loss(first, torch.cat((second, outputs[is_negative])), targets)
        positive = self.pair_scores(first, second)
        if self.config.loss == "cosine":
            return (positive - targets).square().sum(), positive.new_zeros(())
        repeats = torch.tensor([size - 2 for size in output_lengths], device=outputs.device)
        item = torch.repeat_interleave(
            torch.arange(len(output_lengths), device=outputs.device), repeats
        )
        negative = self.pair_scores(first[item], outputs[is_negative])
        if self.config.loss == "margin-mse":
            margins = (positive - negative) / self.config.contrastive_temperature
            return (margins - targets).square().sum(), (margins > 0).sum()
        losses = F.relu(self.config.margin + negative - positive[item]) / repeats[item]
        return losses.sum(), (negative < positive[item]).sum()

    def _in_batch_loss(
        self, anchors: Tensor, candidates: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of each anchor's own text among all candidates of the step."""
        labels = torch.arange(len(anchors), device=anchors.device)
        assert self.positive_pairs is not None, "the decoder is fitted to the training examples"
        other_positives = self.positive_pairs.positive_mask(targets)
        other_positives[labels, labels] = False
        scores = self.scores(anchors, candidates) / self.config.contrastive_temperature
        scores = scores.masked_fill(other_positives, -torch.inf)
        loss = F.cross_entropy(scores, labels, reduction="sum")
        return loss, (scores.argmax(1) == labels).sum()


class RetrievalDecoder(MatchingDecoder, ABC):
    """A decoder whose first texts are queries and whose other texts are documents."""

    @abstractmethod
    def encode_queries(
        self, example_encoder: ExampleEncoder, queries: Sequence[str]
    ) -> list[TaskSequence]:
        """Return one sequence for every query."""

    @abstractmethod
    def encode_documents(
        self, example_encoder: ExampleEncoder, documents: Sequence[str]
    ) -> list[TaskSequence]:
        """Return one sequence for every document."""

    @abstractmethod
    def vectors(self, model: PredictingModel, sequences: Sequence[TaskSequence]) -> TextVectors:
        """Return the representations of texts that a model gives, given their sequences."""

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[Example]
    ) -> list[TaskSequence]:
        documents_of = [
            [text for text in (e.pair, *e.negatives) if text is not None] for e in examples
        ]
        queries = self.encode_queries(example_encoder, [e.text for e in examples])
        flat = [text for texts in documents_of for text in texts]
        documents = iter(self.encode_documents(example_encoder, flat))
        return [
            replace(sequence, example_index=index)
            for index, (query, texts) in enumerate(zip(queries, documents_of, strict=True))
            for sequence in (query, *islice(documents, len(texts)))
        ]

    def output_length(self, sequence: TaskSequence) -> int:
        return 1

    def require_document(self, parts: Sequence[Any]) -> None:
        """Raise UserError for an example with a single text."""
        if len(parts) < 2:
            kind = self.config.kind_name()
            raise UserError(f"output type {kind} scores a text for a query: give a pair")


class MatchingOutput(OutputType):
    """The score of two texts that are encoded apart.

    Attributes:
        loss: ``cosine`` is the squared error between the score and the label over ``max_label``
            (Reimers and Gurevych 2019). ``in-batch`` is cross-entropy of the second text among all
            second texts and negatives of a step (Henderson et al. 2017), except those that match
            the same anchor in any example. ``triplet`` is a hinge loss with ``margin``.
            ``margin-mse`` is the squared error of the difference between the scores of the second
            text and of the negative; the label is this difference for a better model, such as a
            cross-encoder (Hofstätter et al. 2020). All but ``cosine`` train on matching pairs:
            pairs without a label, or with a label of at least half of ``max_label``.
        max_label: the label of two texts with the same meaning.
        contrastive_temperature: divides the scores of ``in-batch`` and ``margin-mse``.
    """

    loss: MatchingLoss = "in-batch"
    max_label: float = Field(default=1.0, gt=0)
    contrastive_temperature: float = Field(default=1.0, gt=0)
    margin: float = Field(default=0.3, gt=0)
    label_kind: ClassVar[LabelKind] = "number"
    needs_pair: ClassVar[bool] = True
    is_grouped: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, MetricFunction]] = RANKING_METRICS
    default_metrics: ClassVar[tuple[str, ...]] = ("ndcg@10", "mrr@10", "recall@1")

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

    def group(self, example: Example) -> str | None:
        """Return the first text, a query, for losses that learn which texts belong to it."""
        return None if self.loss == "cosine" else example.text

    def trainable_examples(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Return the matching pairs, for losses that treat all pairs as matching.

        Errors: UserError for labels on another scale, on which no texts would match, and for an
        example without the margin that ``margin-mse`` learns.
        """
        if self.loss == "margin-mse":
            for example in examples:
                if example.label is None or len(example.negatives) != 1:
                    raise UserError(
                        f"{location_of(example)}: the loss margin-mse learns the difference "
                        f"between the scores of the second text and of one negative: name the "
                        f"columns of the difference (label) and of one negative"
                    )
            return examples
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
        """Return the label; a pair without one matches, except with the loss ``cosine``.

        The label of ``margin-mse`` is the margin of a pair that matches.
        """
        if self.loss == "margin-mse":
            return self.max_label
        if example.label is None:
            return None if self.loss == "cosine" else self.max_label
        return float(example.label)

    def training_label(self, example: Example) -> float | None:
        """Return the target of the loss: the margin, or the label over ``max_label``."""
        if self.loss == "margin-mse":
            assert example.label is not None, "training examples have margins"
            return float(example.label)  # type: ignore[arg-type]
        label = self.reference(example)
        return None if label is None else label / self.max_label

    def metric_inputs(
        self, examples: Sequence[Any], predictions: Sequence[Prediction], for_ranking: bool
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return inputs; for rankings, each first text is a query that ranks all second texts."""
        if not for_ranking:
            return super().metric_inputs(examples, predictions, for_ranking)
        firsts: dict[str, Any] = {}
        seconds: dict[str, Any] = {}
        relevant: dict[str, dict[str, float]] = {}
        for example, prediction in zip(examples, predictions, strict=True):
            vectors, second = prediction.vectors, example.pair
            assert vectors is not None
            firsts[example.text], *others = vectors
            seconds.update(zip((second, *example.negatives), others, strict=True))
            labels = relevant.setdefault(example.text, {})
            labels[second] = max(labels.get(second, 0.0), self.reference(example) or 0.0)
        relevance = [
            np.array([relevant[query].get(text, 0.0) for text in seconds]) for query in firsts
        ]
        scores = score_matrix(*(stack_vectors([*texts.values()]) for texts in (firsts, seconds)))
        return relevance, list(scores)


class RetrievalOutput(MatchingOutput):
    """The score of a document for a query, which has no fixed scale."""

    @field_validator("loss")
    @classmethod
    def _refuse_cosine(cls, loss: MatchingLoss) -> MatchingLoss:
        if loss == "cosine":
            raise ValueError("cosine needs scores from 0 to 1: choose in-batch, or kind similarity")
        return loss
