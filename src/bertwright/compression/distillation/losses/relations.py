"""Distillation of relations between positions in one layer (Wang et al. 2020, 2021: MiniLM).

Queries, keys and values are each compared with themselves, so widths and numbers of heads may
differ.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.compression.distillation.losses.term import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
    DistillationTermConfig,
)
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.encoder.config import EncoderConfig

PROJECTIONS = ("query", "key", "value")


class RelationLossConfig(DistillationTermConfig):
    """A distillation loss KL(teacher || student) of softmax(X X^T / sqrt(d)) within a sequence.

    X stands for the queries, the keys and the values of the student's last layer, split into
    ``heads`` relation heads; the loss is the mean over positions, heads and sequences. ``layer`` is
    the teacher's layer, None for the last one: in a deep teacher a lower layer works better (2021,
    section 4.3).
    """

    kind: Literal["relations"] = "relations"
    layer: int | None = Field(default=None, ge=1, le=1_024)
    heads: int = Field(default=12, ge=1, le=4_096)

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        depth, teacher_depth = (len(c.depth.sublayer_orders()) for c in (student, teacher))
        if not depth or not teacher_depth:
            raise UserError(
                "relations: an encoder without blocks has no queries: choose another method"
            )
        layer = self.layer or teacher_depth
        if layer > teacher_depth:
            raise UserError(
                f"relations: the teacher has {count_noun(teacher_depth, 'layer')}, and no layer "
                f"{layer}"
            )
        for config, block in ((student, depth - 1), (teacher, layer - 1)):
            width = config.mixer_at(block).head_shape(config.block_widths[block][1]).inner_width
            if width % self.heads:
                raise UserError(
                    f"relations: queries of width {width} cannot be split into {self.heads} heads: "
                    f"choose another method, or write one that sets heads of relations"
                )
        return RelationLoss(self.heads, depth - 1, layer - 1)


class RelationLoss(DistillationTerm):
    """A loss on the relations in one block of each model."""

    def __init__(self, heads: int, student_block: int, teacher_block: int) -> None:
        super().__init__()
        self.heads = heads
        self.student_taps = [f"blocks.{student_block}.attention.{part}" for part in PROJECTIONS]
        self.teacher_taps = [f"blocks.{teacher_block}.attention.{part}" for part in PROJECTIONS]

    def count(self, batch_counts: BatchCounts) -> float:
        return batch_counts.num_sequences

    def forward(self, inputs: DistillationInputs) -> Tensor:
        total = inputs.student_outputs.new_zeros(())
        mask = inputs.attention_mask
        for tap, other_tap in zip(self.student_taps, self.teacher_taps, strict=True):
            student = self._log_relation(inputs.student_values[tap], mask)
            teacher = self._log_relation(inputs.teacher_values[other_tap], mask)
            divergence = (teacher.exp() * (teacher - student)).sum(-1)
            divergence = divergence.masked_fill(~mask[:, None, :], 0.0).sum((1, 2))
            total = total + (divergence / (mask.sum(1).clamp(min=1) * self.heads)).sum()
        return total

    def _log_relation(self, vectors: Tensor, attention_mask: Tensor) -> Tensor:
        """Return log probabilities (B, heads, L, L) of vectors (B, H, L, d)."""
        heads = vectors.float().transpose(1, 2).flatten(2).unflatten(2, (self.heads, -1))
        heads = heads.transpose(1, 2)
        scores = torch.matmul(heads, heads.transpose(-1, -2)) * heads.shape[-1] ** -0.5
        return scores.masked_fill(~attention_mask[:, None, None, :], -1e9).log_softmax(-1)
