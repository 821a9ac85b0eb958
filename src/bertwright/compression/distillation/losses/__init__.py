"""Distillation losses: terms that compare a student with its teacher."""

from bertwright.compression.distillation.losses.attention import AttentionLossConfig
from bertwright.compression.distillation.losses.hidden_states import (
    HiddenStateLossConfig,
    MomentLossConfig,
)
from bertwright.compression.distillation.losses.outputs import OutputLossConfig
from bertwright.compression.distillation.losses.relations import RelationLossConfig
from bertwright.compression.distillation.losses.term import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
    DistillationTermConfig,
    DistillationTerms,
)
from bertwright.compression.distillation.losses.vectors import VectorLossConfig

__all__ = [
    "AttentionLossConfig",
    "BatchCounts",
    "DistillationInputs",
    "DistillationTerm",
    "DistillationTermConfig",
    "DistillationTerms",
    "HiddenStateLossConfig",
    "MomentLossConfig",
    "OutputLossConfig",
    "RelationLossConfig",
    "VectorLossConfig",
]
