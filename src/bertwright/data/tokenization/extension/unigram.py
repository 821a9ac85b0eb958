"""New tokens of a unigram model, with log probabilities such that the best segmentation uses them.

The log probability of a new token is that of its occurrences in the text (a step of hard
expectation maximisation), and at least slightly above that of its former tokens together. The
scores of existing tokens stay, and so does the lowest one, which decides how unknown characters
are scored. Therefore no other text is segmented in another way.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from bertwright.data.tokenization.extension.greedy_selection import Segmentation, select_tokens
from bertwright.data.tokenization.extension.new_token import NewToken
from bertwright.data.tokenization.unigram import is_uniform_run

UNKNOWN_PENALTY = 10.0
"""Difference of the lowest score and that of an unknown character, in the tokenizers library."""

MARGIN = 1e-3
"""Minimum difference of the scores of a new token and of its former tokens."""


def extend_unigram(
    model: Mapping[str, Any], words: Mapping[str, int], num_tokens: int
) -> list[NewToken]:
    """Return new tokens of a unigram model, given as settings, for words with their counts."""
    segmenter = UnigramSegmenter(model)
    tokens = select_tokens(words, segmenter, num_tokens)
    original = UnigramSegmenter(model)
    return [
        NewToken(token, original.split_token(token), segmenter.scores[token]) for token in tokens
    ]


class UnigramSegmenter:
    """A unigram model: the segmentation with the highest sum of scores."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.scores: dict[str, float] = dict(model["vocab"])
        self._original = frozenset(self.scores)
        self.min_score = min(self.scores.values())
        self._max_token_length = max(map(len, self.scores))

    def segment(self, word: str) -> Segmentation | None:
        bounds, has_unknown, _ = self.best_path(word)
        # A token is sure to be used only where others start and end.
        tails = {bound: len(bounds) - 1 - n for n, bound in enumerate(bounds)}
        return None if has_unknown else Segmentation(bounds, tails)

    def name(self, word: str, begin: int, end: int) -> str:
        return word[begin:end]

    def may_add(self, token: str) -> bool:
        return token not in self._original and is_uniform_run(token)

    def text(self, token: str) -> str:
        return token

    def add(self, token: str, probability: float) -> None:
        _, _, score = self.best_path(token)
        self.scores[token] = max(math.log(probability), score + MARGIN, self.min_score)
        self._max_token_length = max(self._max_token_length, len(token))

    def remove(self, token: str) -> None:
        del self.scores[token]

    def split_token(self, token: str) -> tuple[str, ...]:
        """Return the tokens of the text of a token."""
        return tuple(token[a:b] for a, b in pairwise(self.best_path(token)[0]))

    def best_path(self, word: str) -> tuple[list[int], bool, float]:
        """Return the bounds of the best segmentation, whether it has unknown characters, its score.

        A character without a token is unknown.
        """
        length, unknown_score = len(word), self.min_score - UNKNOWN_PENALTY
        best = [0.0] + [-math.inf] * length
        previous = [0] * (length + 1)
        is_unknown = [False] * (length + 1)
        for begin in range(length):
            for end in range(begin + 1, min(length, begin + self._max_token_length) + 1):
                score = self.scores.get(word[begin:end])
                unknown = score is None
                if score is None:
                    if end > begin + 1:
                        continue
                    score = unknown_score
                if best[begin] + score > best[end]:
                    best[end], previous[end] = best[begin] + score, begin
                    is_unknown[end] = is_unknown[begin] or unknown
        bounds = [length]
        while bounds[-1]:
            bounds.append(previous[bounds[-1]])
        return bounds[::-1], is_unknown[length], best[length]
