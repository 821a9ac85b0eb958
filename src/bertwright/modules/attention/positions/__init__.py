"""Position encodings.

Reading order: ``position_encoding`` (the axis), ``absolute`` (added or rotary), then the relative
ones: ``distances``, ``relative_bias``, ``relative_vectors``.
"""

from bertwright.modules.attention.positions.absolute import (
    AxialPositionsConfig,
    LearnedPositionsConfig,
    NoPositionsConfig,
    PerBlockPositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
)
from bertwright.modules.attention.positions.position_encoding import (
    HeadShape,
    PositionEncoding,
    PositionsConfig,
    RelativePositions,
    RotaryAngles,
    ScoreTerm,
    apply_rotary,
)
from bertwright.modules.attention.positions.relative_bias import AlibiConfig, RelativeBiasConfig
from bertwright.modules.attention.positions.relative_vectors import (
    DisentangledPositionsConfig,
    TransformerXLPositionsConfig,
)

__all__ = [
    "AlibiConfig",
    "AxialPositionsConfig",
    "DisentangledPositionsConfig",
    "HeadShape",
    "LearnedPositionsConfig",
    "NoPositionsConfig",
    "PerBlockPositionsConfig",
    "PositionEncoding",
    "PositionsConfig",
    "RelativeBiasConfig",
    "RelativePositions",
    "RotaryAngles",
    "RotaryPositionsConfig",
    "ScoreTerm",
    "SinusoidalPositionsConfig",
    "TransformerXLPositionsConfig",
    "apply_rotary",
]
