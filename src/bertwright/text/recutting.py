"""The same word in the pieces of another tokenizer.

What a word is does not depend on a tokenizer, so that two of them can cut it each in its way.
"""

from functools import lru_cache

from bertwright.errors import UserError
from bertwright.text.tokenizers import Tokenizer

CUT_AT_WORDS = ("wordpiece", "byte-bpe")
"""The kinds whose pieces do not reach from word to word, and tell what they are written as."""

MAX_WORDS = 1 << 17
"""Words whose pieces are kept."""


class Recutting:
    """From the pieces of a word in one tokenizer to those in another.

    Errors: UserError where they cut at different places, or one of them does not know capitals.
    """

    def __init__(self, tokenizer: Tokenizer, other: Tokenizer) -> None:
        if tokenizer.kind != other.kind or tokenizer.kind not in CUT_AT_WORDS:
            raise UserError(
                f"words are cut by two tokenizers of one kind, {' or '.join(CUT_AT_WORDS)}; these "
                f"are {tokenizer.kind} and {other.kind}: train one of the kind of the other"
            )
        if tokenizer.lowercase != other.lowercase:
            raise UserError(
                "one of the two tokenizers reads capitals as small letters and the other does not: "
                "train one as the other is"
            )
        self._tokenizer, self._other = tokenizer, other
        self._kept = lru_cache(MAX_WORDS)(self._cut)

    def __call__(self, word: tuple[int, ...]) -> tuple[int, ...] | None:
        """The pieces of the other tokenizer; None for what cannot be said in both: a word with an
        unknown piece, or a part of one."""
        return self._kept(word)

    def _cut(self, word: tuple[int, ...]) -> tuple[int, ...] | None:
        text = self._tokenizer.decode(list(word))
        whole = text and "\ufffd" not in text and self._tokenizer.specials.unknown not in word
        found = self._other.encode(text) if whole else []
        return tuple(found) if found and self._other.decode(found) == text else None
