"""Distillation of text vectors: regression on a teacher's (Vujanic and Rueckstiess 2025, LEAF)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.compression.distillation.losses.term import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
    DistillationTermConfig,
)
from bertwright.core.rng import stream_key
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.sentence_pooling import Pooling, pool_documents

OUTPUT_TAP = "output"
"""The final hidden states, from which vectors are pooled."""


class VectorLossConfig(DistillationTermConfig):
    """A distillation loss on text vectors: the squared length of their difference.

    Vectors are pooled from the final hidden states by ``pooling`` and, with ``normalise``, scaled
    to length 1. If widths differ, a trained linear map takes the student's vectors to the teacher's
    width. If they are equal, student and teacher can be mixed: one encodes queries, the other
    documents.
    """

    kind: Literal["vectors"] = "vectors"
    pooling: Pooling = "mean"
    normalise: bool = True

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        return VectorLoss(self, student.width, teacher.width)


class VectorLoss(DistillationTerm):
    student_taps = teacher_taps = (OUTPUT_TAP,)

    def __init__(self, config: VectorLossConfig, student_width: int, teacher_width: int) -> None:
        super().__init__()
        self.config = config
        self.projection = (
            None if student_width == teacher_width else nn.Linear(student_width, teacher_width)
        )

    def init(self, seed: int) -> None:
        if self.projection is not None:
            generator = torch.Generator().manual_seed(stream_key(seed, "vectors") >> 1)
            normal = torch.randn(self.projection.weight.shape, generator=generator)
            self.projection.weight.data.copy_(normal * self.projection.in_features**-0.5)
            self.projection.bias.data.zero_()

    def count(self, batch_counts: BatchCounts) -> float:
        return batch_counts.num_sequences

    def forward(self, inputs: DistillationInputs) -> Tensor:
        is_text = inputs.attention_mask.any(1)  # other sequences are fillers
        student, teacher = (
            self.pool(values[OUTPUT_TAP], inputs.attention_mask)[is_text]
            for values in (inputs.student_values, inputs.teacher_values)
        )
        if self.projection is not None:
            student = self.projection(student.to(self.projection.weight.dtype)).float()
        if self.config.normalise:
            student, teacher = F.normalize(student, dim=-1), F.normalize(teacher, dim=-1)
        return (student - teacher).square().sum()

    def pool(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors (B, D) of texts with hidden states (B, L, D)."""
        document_ids = attention_mask.long() - 1
        return pool_documents(hidden_states, document_ids, 1, self.config.pooling)[:, 0]
