"""Greedy selection of the tokens that shorten a text most.

A candidate starts where a token of a word starts, and ends behind the end of that token. The tokens
that it saves there are the word's, but those before it, itself, and those of the rest of the word.
The best candidate is added, the words that contain it are segmented again, and the gains of all
candidates in these words are computed again, before the next is added.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Protocol

from bertwright.data.tokenization.extension.new_token import MIN_COUNT

MAX_WORDS = 100_000
"""Maximum number of words that candidates are taken from, those with the most tokens to save."""

MAX_TOKEN_LENGTH = 31
"""Maximum length of a candidate in characters."""

MAX_PASSES = 4
"""Maximum number of times that tokens which longer ones made useless are replaced by others."""


@dataclass(frozen=True)
class Segmentation:
    """The tokens of a word.

    - ``bounds``: where they start, and where the last one ends
    - ``tails``: the number of tokens of the rest of the word after each end of a candidate
    """

    bounds: Sequence[int]
    tails: Mapping[int, int]

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens."""
        return len(self.bounds) - 1


class Segmenter(Protocol):
    """A model that segments words, and whose vocabulary grows."""

    def segment(self, word: str) -> Segmentation | None:
        """Return the tokens of a word; None if one is unknown."""
        ...

    def name(self, word: str, begin: int, end: int) -> str:
        """Return the name of the token for a part of a word."""
        ...

    def may_add(self, token: str) -> bool:
        """Return whether a token is not in the original vocabulary, and may be added."""
        ...

    def text(self, token: str) -> str:
        """Return the characters that a token stands for."""
        ...

    def add(self, token: str, probability: float) -> None:
        """Add a token, given its expected fraction of the tokens of the text."""
        ...

    def remove(self, token: str) -> None:
        """Remove a token that was added."""
        ...


def select_tokens(words: Mapping[str, int], segmenter: Segmenter, num_tokens: int) -> list[str]:
    """Return at most ``num_tokens`` tokens that shorten words (with their counts) most.

    The segmenter has them afterwards. Tokens come in the order in which they were added.
    """
    selection = _Selection(words, segmenter)
    selection.add_best(num_tokens)
    for _ in range(MAX_PASSES):
        if not selection.remove_unused():
            break
        selection.add_best(num_tokens)
    return selection.tokens


class _Selection:
    """The words of a text with their tokens, and the gains of all candidates."""

    def __init__(self, words: Mapping[str, int], segmenter: Segmenter) -> None:
        self.tokens: list[str] = []
        self._segmenter = segmenter
        known = [
            (word, count, segmentation)
            for word, count in words.items()
            if (segmentation := segmenter.segment(word)) is not None
        ]
        self._num_tokens = sum(count * tokens.num_tokens for _, count, tokens in known)
        divided = [item for item in known if item[2].num_tokens > 1]
        divided.sort(key=lambda item: (-item[1] * (item[2].num_tokens - 1), item[0]))
        self._words = [word for word, _, _ in divided[:MAX_WORDS]]
        self._counts = [count for _, count, _ in divided[:MAX_WORDS]]
        self._segmentations = [segmentation for _, _, segmentation in divided[:MAX_WORDS]]
        self._words_by_bigram: dict[str, list[int]] = {}
        self._gains: Counter[str] = Counter()
        self._occurrences: Counter[str] = Counter()
        for index, word in enumerate(self._words):
            for bigram in {word[n : n + 2] for n in range(len(word) - 1)}:
                self._words_by_bigram.setdefault(bigram, []).append(index)
            self._count_candidates(index, 1)
        self._heap = [(-gain, token) for token, gain in self._gains.items()]
        heapify(self._heap)

    def add_best(self, num_tokens: int) -> None:
        """Add the best candidates until there are ``num_tokens``, or none helps."""
        while len(self.tokens) < num_tokens and self._drop_outdated():
            gain, token = -self._heap[0][0], heappop(self._heap)[1]
            occurrences = self._occurrences[token]
            if occurrences < MIN_COUNT:
                continue
            self._segmenter.add(token, occurrences / self._num_tokens)
            new = {n: self._segment(n) for n in self._words_with(self._segmenter.text(token))}
            # Also counts words in which the token divides others, and so may do harm.
            exact_gain = sum(
                self._counts[n] * (self._segmentations[n].num_tokens - tokens.num_tokens)
                for n, tokens in new.items()
            )
            next_gain = -self._heap[0][0] if self._drop_outdated() else 0
            if exact_gain <= 0 or exact_gain < min(gain, next_gain):
                self._segmenter.remove(token)
                self._gains[token] = exact_gain
                if exact_gain > 0:
                    heappush(self._heap, (-exact_gain, token))
                continue
            self.tokens.append(token)
            self._replace(new)

    def remove_unused(self) -> bool:
        """Remove added tokens that no word uses any more; return whether there are any."""
        used = {
            self._segmenter.name(word, begin, end)
            for word, tokens in zip(self._words, self._segmentations, strict=True)
            for begin, end in pairwise(tokens.bounds)
        }
        unused = [token for token in self.tokens if token not in used]
        for token in unused:
            self._segmenter.remove(token)
        self.tokens = [token for token in self.tokens if token in used]
        return bool(unused)

    def _segment(self, index: int) -> Segmentation:
        segmentation = self._segmenter.segment(self._words[index])
        assert segmentation is not None, "more tokens make no word unknown"
        return segmentation

    def _drop_outdated(self) -> bool:
        """Drop candidates from the heap whose gain has changed; return whether any is left."""
        while self._heap and self._gains[self._heap[0][1]] != -self._heap[0][0]:
            heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] < 0

    def _replace(self, segmentations: Mapping[int, Segmentation]) -> None:
        """Replace the tokens of words by index, and update the candidates in these words."""
        candidates: set[str] = set()
        for index, new in segmentations.items():
            old = self._segmentations[index]
            if new == old:
                continue
            candidates.update(self._count_candidates(index, -1))
            self._num_tokens += self._counts[index] * (new.num_tokens - old.num_tokens)
            self._segmentations[index] = new
            candidates.update(self._count_candidates(index, 1))
        for token in sorted(candidates):
            if self._gains[token] > 0:
                heappush(self._heap, (-self._gains[token], token))

    def _count_candidates(self, index: int, sign: int) -> list[str]:
        """Add the candidates of a word to the gains, or subtract them; return them."""
        candidates: list[str] = []
        for token, saved in self._candidates(index):
            self._gains[token] += sign * saved * self._counts[index]
            self._occurrences[token] += sign * self._counts[index]
            candidates.append(token)
        return candidates

    def _candidates(self, index: int) -> Iterator[tuple[str, int]]:
        """Yield every candidate of a word, and the number of tokens that it saves."""
        word, tokens = self._words[index], self._segmentations[index]
        for first, (begin, end_of_token) in enumerate(pairwise(tokens.bounds)):
            for end in range(end_of_token + 1, min(len(word), begin + MAX_TOKEN_LENGTH) + 1):
                num_saved = tokens.num_tokens - first - 1 - tokens.tails.get(end, len(word))
                if num_saved > 0:
                    token = self._segmenter.name(word, begin, end)
                    if self._segmenter.may_add(token):
                        yield token, num_saved

    def _words_with(self, text: str) -> list[int]:
        """Return the indices of all words that contain a text of two characters or more."""
        bigrams = (text[n : n + 2] for n in range(len(text) - 1))
        rarest = min((self._words_by_bigram[bigram] for bigram in bigrams), key=len)
        return [index for index in rarest if text in self._words[index]]
