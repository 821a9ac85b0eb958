"""A token that is added to a vocabulary."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NewToken:
    """A new token, and the tokens that stood for it before.

    - ``token``: the name in the vocabulary, such as ``##virus``
    - ``parts``: the names of its former tokens
    - ``score``: log probability, in a unigram model
    """

    token: str
    parts: tuple[str, ...]
    score: float | None = None


MIN_COUNT = 2
"""Minimum number of occurrences of a new token; one would only memorise the text."""
