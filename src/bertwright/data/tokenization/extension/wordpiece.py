"""New tokens of a WordPiece vocabulary: the longest token that fits is taken from the left."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from bertwright.data.tokenization.extension.greedy_selection import Bounds, select_tokens
from bertwright.data.tokenization.extension.new_token import NewToken


def extend_wordpiece(
    model: Mapping[str, Any], words: Mapping[str, int], num_tokens: int
) -> list[NewToken]:
    """Return new tokens of a WordPiece model, given as settings, for words with their counts."""
    segmenter = WordPieceSegmenter(model)
    tokens = select_tokens(words, segmenter, num_tokens)
    original = WordPieceSegmenter(model)
    return [NewToken(token, original.split_token(token)) for token in tokens]


class WordPieceSegmenter:
    """A WordPiece model; tokens inside of a word have a prefix."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._original: Mapping[str, int] = model["vocab"]
        self._vocabulary = set(self._original)
        self._prefix: str = model["continuing_subword_prefix"]
        self._max_word_length: int = model["max_input_chars_per_word"]
        self._max_token_length = max(map(len, self._vocabulary))

    def segment(self, word: str, begin: int = 0) -> Bounds | None:
        """Return the bounds of a word's tokens from ``begin``; None if a part has no token."""
        if len(word) > self._max_word_length:
            return None
        bounds = [begin]
        while begin < len(word):
            end = min(len(word), begin + self._max_token_length)
            while end > begin and self.name(word, begin, end) not in self._vocabulary:
                end -= 1
            if end == begin:
                return None
            bounds.append(end)
            begin = end
        return bounds

    def name(self, word: str, begin: int, end: int) -> str:
        return (self._prefix if begin else "") + word[begin:end]

    def may_add(self, token: str) -> bool:
        return token not in self._original

    def text(self, token: str) -> str:
        return token.removeprefix(self._prefix)

    def add(self, token: str, probability: float) -> None:
        self._vocabulary.add(token)
        self._max_token_length = max(self._max_token_length, len(token))

    def remove(self, token: str) -> None:
        self._vocabulary.discard(token)

    def split_token(self, token: str) -> tuple[str, ...]:
        """Return the tokens of the text of a token, at the place in a word where it stands."""
        begin = len(self._prefix) if token.startswith(self._prefix) else 0
        bounds = self.segment(token, begin)
        assert bounds is not None, "candidates consist of tokens"
        return tuple(
            ("" if start == 0 else self._prefix) + token[start:end]
            for start, end in pairwise(bounds)
        )
