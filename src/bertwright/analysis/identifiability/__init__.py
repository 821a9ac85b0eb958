"""What attention weights can tell of a model, and what they cannot."""

from bertwright.analysis.identifiability.effective import EffectiveAttention
from bertwright.analysis.identifiability.norms import AttentionNorms

__all__ = ["AttentionNorms", "EffectiveAttention"]
