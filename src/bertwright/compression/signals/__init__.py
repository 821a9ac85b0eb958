"""What a student hears of its teacher."""

from bertwright.compression.signals.attention import AttentionMaps
from bertwright.compression.signals.comparisons import Comparisons
from bertwright.compression.signals.moments import Moments
from bertwright.compression.signals.outputs import Outputs
from bertwright.compression.signals.relations import Relations
from bertwright.compression.signals.signal import Comparison, Heard, Signal, Sizes
from bertwright.compression.signals.states import States

__all__ = [
    "AttentionMaps",
    "Comparison",
    "Comparisons",
    "Heard",
    "Moments",
    "Outputs",
    "Relations",
    "Signal",
    "Sizes",
    "States",
]
