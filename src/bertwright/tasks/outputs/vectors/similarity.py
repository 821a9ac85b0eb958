"""Similarity of texts, measured between their vectors: a bi-encoder.

Every text is a sequence whose pooled hidden state is the output, without a classifier. If the head
pools the last layer by mean or first position, the vectors equal the result of ``embed``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.metrics.metrics import PEARSON, SPEARMAN
from bertwright.tasks.metrics.ranking import RANKING_METRICS
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs
from bertwright.tasks.outputs.output_type import MetricFunction
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.vectors.matching import MatchingDecoder, MatchingLoss, MatchingOutput
from bertwright.tasks.outputs.vectors.text_vectors import normalise


@dataclass(frozen=True)
class SimilarityDecoder(MatchingDecoder):
    """The decoder of :class:`SimilarityOutput`."""

    config: "SimilarityOutput"

    @property
    def num_outputs(self) -> int:
        return 0

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
            super(SimilarityDecoder, self).loss(
                F.normalize(outputs[:, :width], dim=1), output_lengths, targets
            )
            for width in widths
        ]
        total = torch.stack([loss for loss, _ in losses]).mean()
        return total, losses[0][1]

    def comparable_outputs(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        """Return the cosines between the first text of each item and its other texts."""
        items = (F.normalize(item, dim=1) for item in outputs.split(list(output_lengths)))
        return torch.cat([item[1:] @ item[0] for item in items]).unsqueeze(1)

    def decode_example(self, example: Example, parts: Sequence[SequenceOutputs]) -> Prediction:
        vectors = np.concatenate([outputs for _, outputs in parts])
        if len(vectors) < 2:
            raise UserError("output type similarity compares two texts: give a pair")
        unit = normalise(vectors[:2])
        return Prediction(float(unit[0] @ unit[1]), vectors=vectors)


class SimilarityOutput(MatchingOutput):
    """The similarity of two texts: the cosine of their vectors.

    Attributes:
        matryoshka_dims: smaller widths; the loss also trains the first dimensions of a vector up to
            each width, so that they can be used alone (Kusupati et al. 2022).
    """

    kind: Literal["similarity"] = "similarity"
    loss: MatchingLoss = "cosine"
    contrastive_temperature: float = Field(default=0.05, gt=0)
    matryoshka_dims: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = ()
    decoder_type: ClassVar[type[OutputDecoder]] = SimilarityDecoder
    metrics: ClassVar[Mapping[str, MetricFunction]] = {
        "spearman": SPEARMAN,
        "pearson": PEARSON,
        **RANKING_METRICS,
    }
    default_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")
