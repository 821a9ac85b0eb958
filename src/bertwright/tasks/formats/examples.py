"""What a file of examples holds: texts with a class or a number, or words with tags."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A text, or a pair of texts, and its class or number (None where it is not known)."""

    first: str
    second: str | None = None
    label: str | float | None = None


@dataclass(frozen=True)
class TaggedWords:
    """The words of a sentence and a tag for each (None where they are not known)."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
