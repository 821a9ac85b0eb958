"""Distillation of hidden states, with a projection if the widths differ."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.compression.distillation.losses.layers import LayerLossConfig, LayerStateLoss
from bertwright.compression.distillation.losses.term import BatchCounts, DistillationTerm
from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key
from bertwright.encoder.config import EncoderConfig


class HiddenStateLossConfig(LayerLossConfig):
    """A distillation loss on hidden states: the mean over ``positions``, summed over layer pairs.

    ``squared`` is the squared difference, averaged over the width; ``cosine`` is 1 - cosine.
    ``normalisation`` divides states by their ``length`` (Sun et al. 2019) or standardises them to
    mean 0 and ``deviation`` 1 (Sun et al. 2020). If widths differ, a trained linear projection maps
    the student's states: one ``shared`` by all layers (Jiao et al. 2020, released code) or one
    ``per-layer``.
    """

    kind: Literal["states"] = "states"
    positions: Literal["all", "first"] = "all"
    distance: Literal["squared", "cosine"] = "squared"
    normalisation: Literal["length", "deviation"] | None = None
    projection: Literal["shared", "per-layer"] = "shared"

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        pairs = self.layer_pairs(student, teacher)
        student_widths, teacher_widths = student.hidden_widths, teacher.hidden_widths
        widths = [(student_widths[layer], teacher_widths[other]) for layer, other in pairs]
        projections: list[nn.Module] | None = None
        if any(width != other for width, other in widths):
            if self.projection == "shared":
                if len(set(widths)) > 1:
                    raise UserError(
                        "states: layers of several widths cannot share a projection: set "
                        "projection to per-layer"
                    )
                widths = widths[:1]
            projections = [nn.Linear(*sizes) for sizes in widths]
        return HiddenStateLoss(self, pairs, projections)


class HiddenStateLoss(LayerStateLoss[HiddenStateLossConfig]):
    """A loss on hidden states, with no projection, one for all layer pairs, or one per pair."""

    def __init__(
        self,
        config: HiddenStateLossConfig,
        pairs: list[tuple[int, int]],
        projections: list[nn.Module] | None,
    ) -> None:
        super().__init__(config, pairs)
        self.projections = None if projections is None else nn.ModuleList(projections)

    def init(self, seed: int) -> None:
        for number, projection in enumerate(self.projections or ()):
            assert isinstance(projection, nn.Linear)
            generator = torch.Generator().manual_seed(stream_key(seed, "states", number) >> 1)
            normal = torch.randn(projection.weight.shape, generator=generator)
            projection.weight.data.copy_(normal * projection.in_features**-0.5)
            projection.bias.data.zero_()

    def count(self, batch_counts: BatchCounts) -> float:
        is_first = self.config.positions == "first"
        return batch_counts.num_sequences if is_first else super().count(batch_counts)

    def select_positions(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        if self.config.positions == "first":
            return hidden_states[attention_mask[:, 0], 0]
        return super().select_positions(hidden_states, attention_mask)

    def distance(self, pair_index: int, student_states: Tensor, teacher_states: Tensor) -> Tensor:
        if self.projections is not None:
            student_states = self.projections[pair_index % len(self.projections)](student_states)
        student_states = student_states.float()
        if self.config.distance == "cosine":
            return (1 - F.cosine_similarity(student_states, teacher_states, dim=-1)).sum()
        if self.config.normalisation == "length":
            student_states = F.normalize(student_states, dim=-1)
            teacher_states = F.normalize(teacher_states, dim=-1)
        elif self.config.normalisation == "deviation":
            student_states = F.layer_norm(student_states, student_states.shape[-1:])
            teacher_states = F.layer_norm(teacher_states, teacher_states.shape[-1:])
        return (student_states - teacher_states).square().mean(-1).sum()


class MomentLossConfig(LayerLossConfig):
    """A distillation loss on a moment of each hidden state over its width.

    The loss is the squared difference of the ``mean``, or the absolute difference of the
    ``variance``: the mean over positions, summed over layer pairs. The released code takes the
    teacher's moments over all its layers at once; here they are taken from the paired layer.
    """

    kind: Literal["moments"] = "moments"
    moment: Literal["mean", "variance"] = "mean"

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        return MomentLoss(self, self.layer_pairs(student, teacher))


class MomentLoss(LayerStateLoss[MomentLossConfig]):
    def distance(self, pair_index: int, student_states: Tensor, teacher_states: Tensor) -> Tensor:
        student_states = student_states.float()
        if self.config.moment == "mean":
            return (student_states.mean(-1) - teacher_states.mean(-1)).square().sum()
        student_variance = student_states.var(-1, unbiased=False)
        return (student_variance - teacher_states.var(-1, unbiased=False)).abs().sum()
