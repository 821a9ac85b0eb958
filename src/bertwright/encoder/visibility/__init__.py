"""Who may see whom: rules over coordinates, and what a rule comes to for one batch."""

from bertwright.encoder.visibility.rules import (
    Bidirectional,
    Both,
    Causal,
    Either,
    InOrder,
    SameDocument,
    Visibility,
    Window,
)
from bertwright.encoder.visibility.sparse import Global, RandomBlocks, Short
from bertwright.encoder.visibility.tiles import Group, Tiles, laid_out
from bertwright.encoder.visibility.view import (
    Tiling,
    View,
    Wide,
    document_bounds,
    is_two_sided,
    view,
)

__all__ = [
    "Bidirectional",
    "Both",
    "Causal",
    "Either",
    "Global",
    "Group",
    "InOrder",
    "RandomBlocks",
    "SameDocument",
    "Short",
    "Tiles",
    "Tiling",
    "View",
    "Visibility",
    "Wide",
    "Window",
    "document_bounds",
    "is_two_sided",
    "laid_out",
    "view",
]
