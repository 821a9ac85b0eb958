"""Selection: which places of a row are asked about.

Reading order: ``choosing`` (the axis, and how many places a row may have chosen), then one file per
way: ``tokens``, ``words``, ``phrases``, ``spans``,
``partition``.
"""

from bertwright.examples.selection.choosing import FILLER, Chosen, Selection, num_slots
from bertwright.examples.selection.partition import Partition
from bertwright.examples.selection.phrases import Entities, Phrases
from bertwright.examples.selection.spans import NGrams, Spans
from bertwright.examples.selection.tokens import Tokens
from bertwright.examples.selection.words import WholeWords

__all__ = [
    "FILLER",
    "Chosen",
    "Entities",
    "NGrams",
    "Partition",
    "Phrases",
    "Selection",
    "Spans",
    "Tokens",
    "WholeWords",
    "num_slots",
]
