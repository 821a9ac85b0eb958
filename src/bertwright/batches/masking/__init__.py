"""Masking: which positions are masked, and what replaces them.

Reading order: ``selection`` (the axis, and the masking budget), ``units`` (tokens, words, phrases),
``spans``, ``spaced_spans``, ``corruption``.
"""

from bertwright.batches.masking.selection import (
    FILLER_POSITION,
    MaskSelection,
    SelectedPositions,
    count_slots,
    part_numbers,
)
from bertwright.batches.masking.spaced_spans import SpacedSpanSelection
from bertwright.batches.masking.spans import NGramSelection, PartitionSelection, SpanSelection
from bertwright.batches.masking.units import (
    EntitySelection,
    PhraseSelection,
    TokenSelection,
    WholeWordSelection,
)

__all__ = [
    "FILLER_POSITION",
    "EntitySelection",
    "MaskSelection",
    "NGramSelection",
    "PartitionSelection",
    "PhraseSelection",
    "SelectedPositions",
    "SpacedSpanSelection",
    "SpanSelection",
    "TokenSelection",
    "WholeWordSelection",
    "count_slots",
    "part_numbers",
]
