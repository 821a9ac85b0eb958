"""How a place knows where it is.

Reading order: ``scheme`` (the axis), ``absolute`` (a vector that is added, a rotation), then what
enters the scores by distance: ``distances``, ``biases``, ``relative``.
"""

from bertwright.encoder.positions.absolute import (
    Axial,
    EveryBlock,
    Learned,
    NoPositions,
    Rotary,
    Sinusoidal,
)
from bertwright.encoder.positions.biases import Alibi, Bucketed
from bertwright.encoder.positions.relative import LogBuckets, TransformerXl
from bertwright.encoder.positions.scheme import (
    HeadShape,
    Positions,
    PositionScheme,
    Relation,
    Rotation,
    Term,
    rotate,
)

__all__ = [
    "Alibi",
    "Axial",
    "Bucketed",
    "EveryBlock",
    "HeadShape",
    "Learned",
    "LogBuckets",
    "NoPositions",
    "PositionScheme",
    "Positions",
    "Relation",
    "Rotary",
    "Rotation",
    "Sinusoidal",
    "Term",
    "TransformerXl",
    "rotate",
]
