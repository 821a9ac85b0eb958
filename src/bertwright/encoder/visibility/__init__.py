"""Who may see whom: rules over coordinates, and what a rule comes to for one batch."""

from bertwright.encoder.visibility.directions import (
    Way,
    is_by_halves,
    is_causal,
    is_empty,
    is_read_on,
    is_two_sided,
    ways,
)
from bertwright.encoder.visibility.heads import by_head, laid_out_by_head
from bertwright.encoder.visibility.rules import (
    Bidirectional,
    Both,
    BothWays,
    Causal,
    Either,
    InOrder,
    Reversed,
    SameDocument,
    Visibility,
    Window,
)
from bertwright.encoder.visibility.sparse import (
    Global,
    RandomBlocks,
    Short,
    of_segment,
    segment_of,
    with_first,
)
from bertwright.encoder.visibility.tiles import Group, Tiles, laid_out
from bertwright.encoder.visibility.view import (
    Tiling,
    View,
    Wide,
    document_bounds,
    seen,
    view,
)
from bertwright.encoder.visibility.windows import Windows

__all__ = [
    "Bidirectional",
    "Both",
    "BothWays",
    "Causal",
    "Either",
    "Global",
    "Group",
    "InOrder",
    "RandomBlocks",
    "Reversed",
    "SameDocument",
    "Short",
    "Tiles",
    "Tiling",
    "View",
    "Visibility",
    "Way",
    "Wide",
    "Window",
    "Windows",
    "by_head",
    "document_bounds",
    "is_by_halves",
    "is_causal",
    "is_empty",
    "is_read_on",
    "is_two_sided",
    "laid_out",
    "laid_out_by_head",
    "of_segment",
    "seen",
    "segment_of",
    "view",
    "ways",
    "with_first",
]
