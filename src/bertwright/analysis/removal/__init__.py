"""What a model loses with a part of it."""

from bertwright.analysis.removal.fixed_heads import FixedHeads
from bertwright.analysis.removal.importance import HeadImportance
from bertwright.analysis.removal.layers import LayerRedundancy
from bertwright.analysis.removal.learned_gates import LearnedGates
from bertwright.analysis.removal.one_head import OneHead
from bertwright.analysis.removal.single_heads import SingleHeads
from bertwright.analysis.removal.translation_heads import TranslationHeads

__all__ = [
    "FixedHeads",
    "HeadImportance",
    "LayerRedundancy",
    "LearnedGates",
    "OneHead",
    "SingleHeads",
    "TranslationHeads",
]
