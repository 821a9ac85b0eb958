"""Translation of words from the tokens of one tokenizer to the tokens of another.

Words do not depend on the tokenizer, so every tokenizer can encode them.
"""

from functools import lru_cache

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer

WORD_BOUNDED_KINDS = ("wordpiece", "byte-bpe")
"""Kinds of tokenizers whose tokens do not cross word boundaries and can be decoded."""

MAX_CACHED_WORDS = 1 << 17


class WordRetokenizer:
    """A map from a word's tokens in one tokenizer to its tokens in another.

    Errors: UserError if the tokenizers differ in kind, or only one of them lower-cases.
    """

    def __init__(self, tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> None:
        if tokenizer.kind != target_tokenizer.kind or tokenizer.kind not in WORD_BOUNDED_KINDS:
            raise UserError(
                f"both tokenizers must be of the same kind, {' or '.join(WORD_BOUNDED_KINDS)}; "
                f"they are {tokenizer.kind} and {target_tokenizer.kind}: train one of the other's "
                f"kind"
            )
        if tokenizer.lowercase != target_tokenizer.lowercase:
            raise UserError(
                "one of the two tokenizers lower-cases and the other does not: train both alike"
            )
        self._tokenizer, self._target_tokenizer = tokenizer, target_tokenizer
        self._cached_retokenize = lru_cache(MAX_CACHED_WORDS)(self._retokenize)

    def __call__(self, word: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the target tokens of a word; None for an unknown or partial word."""
        return self._cached_retokenize(word)

    def _retokenize(self, word: tuple[int, ...]) -> tuple[int, ...] | None:
        text = self._tokenizer.decode(list(word))
        if not text or "\ufffd" in text or self._tokenizer.special_tokens.unknown in word:
            return None
        tokens = self._target_tokenizer.encode(text)
        return tuple(tokens) if tokens and self._target_tokenizer.decode(tokens) == text else None
