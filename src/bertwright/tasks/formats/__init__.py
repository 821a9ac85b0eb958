"""Files of examples: one file for each layout in which they come.

All readers are imported, so that a stored task finds its own.
"""

from bertwright.tasks.formats import (
    multiple_choice,
    punctuation_restoration,
    squad,
    tables,
    tagged_sentences,
    word_in_context,
)

__all__ = [
    "multiple_choice",
    "punctuation_restoration",
    "squad",
    "tables",
    "tagged_sentences",
    "word_in_context",
]
