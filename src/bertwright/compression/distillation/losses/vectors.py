"""Distillation of text vectors: regression on a teacher's (Vujanic and Rueckstiess 2025, LEAF)."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from bertwright.compression.distillation.losses.term import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
    DistillationTermConfig,
)
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.sentence_pooling import Pooling, pool_documents
from bertwright.modules.vector_projection import VectorProjection

OUTPUT_TAP = "output"
"""The final hidden states, from which vectors are pooled."""


class VectorLossConfig(DistillationTermConfig):
    """A distillation loss on text vectors: the squared length of their difference.

    Vectors are pooled from the final hidden states by ``pooling``, projected if a model has a
    projection, and, with ``normalise``, scaled to length 1. Both models need vectors of equal
    width, so that they can be mixed: one encodes queries, the other documents.
    """

    kind: Literal["vectors"] = "vectors"
    pooling: Pooling = "mean"
    normalise: bool = True

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        return VectorLoss(self)


class VectorLoss(DistillationTerm):
    student_taps = teacher_taps = (OUTPUT_TAP,)

    def __init__(self, config: VectorLossConfig) -> None:
        super().__init__()
        self.config = config

    def count(self, batch_counts: BatchCounts) -> float:
        return batch_counts.num_sequences

    def forward(self, inputs: DistillationInputs) -> Tensor:
        is_text = inputs.attention_mask.any(1)  # other sequences are fillers
        mask = inputs.attention_mask
        teacher_mask = mask if inputs.teacher_mask is None else inputs.teacher_mask
        student, teacher = (
            self.vectors(values[OUTPUT_TAP], attention_mask, projection)[is_text]
            for values, attention_mask, projection in (
                (inputs.student_values, mask, inputs.student_projection),
                (inputs.teacher_values, teacher_mask, inputs.teacher_projection),
            )
        )
        return (student - teacher).square().sum()

    def vectors(
        self, hidden_states: Tensor, attention_mask: Tensor, projection: VectorProjection | None
    ) -> Tensor:
        """Return the vectors (B, K) of texts with hidden states (B, L, D)."""
        document_ids = attention_mask.long() - 1
        pooled = pool_documents(hidden_states, document_ids, 1, self.config.pooling)[:, 0]
        projected = pooled if projection is None else projection(pooled)
        return F.normalize(projected, dim=-1) if self.config.normalise else projected
