"""File formats of examples, one module per layout.

All readers are imported, so that a stored task can find its reader.
"""

from bertwright.tasks.formats import (
    multiple_choice,
    parallel_texts,
    punctuation_restoration,
    squad,
    tables,
    tagged_sentences,
    titles,
    word_in_context,
)

__all__ = [
    "multiple_choice",
    "parallel_texts",
    "punctuation_restoration",
    "squad",
    "tables",
    "tagged_sentences",
    "titles",
    "word_in_context",
]
