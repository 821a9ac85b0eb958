"""New tokens of a WordPiece vocabulary: the longest token that fits is taken from the left."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from bertwright.data.tokenization.extension.greedy_selection import Segmentation, select_tokens
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

    def segment(self, word: str, begin: int = 0) -> Segmentation | None:
        """Return the tokens of a word from ``begin``; None if a part has no token."""
        length = len(word)
        if length > self._max_word_length:
            return None
        ends, tails = [0] * length, {length: 0}
        for start in reversed(range(begin, length)):
            end = self._end_of_token(word, start)
            if end in tails:
                ends[start], tails[start] = end, tails[end] + 1
        if begin not in tails:
            return None
        bounds = [begin]
        while bounds[-1] < length:
            bounds.append(ends[bounds[-1]])
        return Segmentation(bounds, tails)

    def _end_of_token(self, word: str, begin: int) -> int | None:
        """Return the end of the longest token that starts in a word at ``begin``, if any."""
        for end in range(min(len(word), begin + self._max_token_length), begin, -1):
            if self.name(word, begin, end) in self._vocabulary:
                return end
        return None

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
        """Return the tokens of the text of a token, at the start of a word or inside of it."""
        begin = len(self._prefix) if token.startswith(self._prefix) else 0
        segmentation = self.segment(token, begin)
        assert segmentation is not None, "the characters of a candidate have tokens"
        return tuple(
            ("" if start == 0 else self._prefix) + token[start:end]
            for start, end in pairwise(segmentation.bounds)
        )
