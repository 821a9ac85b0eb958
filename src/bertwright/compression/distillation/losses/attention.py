"""Distillation of attention: scores before the softmax, or weights after it."""

from typing import Literal

from torch import Tensor

from bertwright.compression.distillation.losses.layers import LayerLoss, LayerLossConfig
from bertwright.compression.distillation.losses.term import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
)
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig


class AttentionLossConfig(LayerLossConfig):
    """A distillation loss on attention: the mean over sequences, summed over layer pairs.

    ``scores`` is the mean squared difference over all heads and all pairs of positions that the
    teacher's mask allows and whose scores are finite (Jiao et al. 2020). ``weights`` is the mean
    KL(teacher || student) over heads and positions (Aguilar et al. 2020). If the numbers of heads
    differ, means over heads are compared.
    """

    kind: Literal["attention"] = "attention"
    target: Literal["scores", "weights"] = "scores"

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        layers = self.layer_pairs(student, teacher)
        pairs = [(layer, other) for layer, other in layers if layer and other]
        if not pairs:
            raise UserError(
                "attention: layer 0, the embeddings, has no attention: name layers of blocks"
            )
        return AttentionLoss(self, pairs)


class AttentionLoss(LayerLoss[AttentionLossConfig]):
    def __init__(self, config: AttentionLossConfig, pairs: list[tuple[int, int]]) -> None:
        super().__init__(config, pairs)
        names = ["weights"] if config.target == "weights" else ["weights", "scores"]
        student_layers, teacher_layers = zip(*self.pairs, strict=True)
        self.student_taps = [f"blocks.{n - 1}.attention.{k}" for n in student_layers for k in names]
        self.teacher_taps = [f"blocks.{n - 1}.attention.{k}" for n in teacher_layers for k in names]

    def count(self, batch_counts: BatchCounts) -> float:
        return batch_counts.num_sequences

    def forward(self, inputs: DistillationInputs) -> Tensor:
        total = inputs.student_outputs.new_zeros(())
        for index in self.active_pairs(inputs.fraction):
            tap, other_tap = (f"blocks.{layer - 1}.attention" for layer in self.pairs[index])
            student, teacher = _same_num_heads(
                inputs.student_values[f"{tap}.{self.config.target}"],
                inputs.teacher_values[f"{other_tap}.{self.config.target}"],
            )
            allowed = inputs.teacher_values[f"{other_tap}.weights"] > 0
            total = total + self._distance(student, teacher, allowed, inputs.attention_mask)
        return total

    def _distance(
        self,
        student_attention: Tensor,
        teacher_attention: Tensor,
        allowed: Tensor,
        attention_mask: Tensor,
    ) -> Tensor:
        """Return the distance between attention tensors (B, H, L, L), summed over sequences."""
        pairs = (
            attention_mask[:, None, :, None]
            & attention_mask[:, None, None, :]
            & allowed.any(1, keepdim=True)
        )
        if self.config.target == "scores":
            # A head with a fixed pattern has scores of minus infinity.
            compared = pairs & student_attention.isfinite() & teacher_attention.isfinite()
            student_scores, teacher_scores = (
                attention.masked_fill(~compared, 0.0)
                for attention in (student_attention, teacher_attention)
            )
            distance = (student_scores - teacher_scores).square().sum((1, 2, 3))
            return (distance / compared.sum((1, 2, 3)).clamp(min=1)).sum()
        logs = teacher_attention.clamp(min=1e-12).log() - student_attention.clamp(min=1e-12).log()
        distance = (teacher_attention * logs).masked_fill(~pairs, 0.0).sum((1, 2, 3))
        num_rows = attention_mask.sum(1).clamp(min=1) * student_attention.shape[1]
        return (distance / num_rows).sum()


def _same_num_heads(student_attention: Tensor, teacher_attention: Tensor) -> tuple[Tensor, Tensor]:
    """Return both tensors in float32 with the same number of heads."""
    student_attention, teacher_attention = student_attention.float(), teacher_attention.float()
    if student_attention.shape[1] == teacher_attention.shape[1]:
        return student_attention, teacher_attention
    return student_attention.mean(1, keepdim=True), teacher_attention.mean(1, keepdim=True)
