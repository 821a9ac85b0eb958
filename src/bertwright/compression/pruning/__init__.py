"""Weights that go while a task is learned.

What goes is zero in the finished model, whose matrices are as large as before: only surgery makes a
model smaller or faster.
"""

from bertwright.compression.pruning.kinds import (
    GatePruning,
    MagnitudePruning,
    MovementPruning,
    SoftMovementPruning,
)
from bertwright.compression.pruning.pruned import Pruned, Pruning

__all__ = [
    "GatePruning",
    "MagnitudePruning",
    "MovementPruning",
    "Pruned",
    "Pruning",
    "SoftMovementPruning",
]
