"""Pruning of weights while a task is learned.

Pruned weights are zero and the matrices keep their shapes; only structured pruning makes a model
smaller or faster.
"""

from bertwright.compression.pruning.weight_pruning import PruningGates, WeightPruning
from bertwright.compression.pruning.weight_pruning_methods import (
    HardConcretePruning,
    MagnitudePruning,
    MovementPruning,
    SoftMovementPruning,
)

__all__ = [
    "HardConcretePruning",
    "MagnitudePruning",
    "MovementPruning",
    "PruningGates",
    "SoftMovementPruning",
    "WeightPruning",
]
