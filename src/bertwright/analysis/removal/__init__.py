"""What a model loses with a part of it."""

from bertwright.analysis.removal.importance import HeadImportance
from bertwright.analysis.removal.single_heads import SingleHeads

__all__ = ["HeadImportance", "SingleHeads"]
