"""Greedy selection of the tokens that shorten a text most.

A candidate replaces consecutive tokens of a word. It saves as many tokens as it replaces, but one,
at each of its occurrences. The best one is added, the words that contain it are segmented again,
and the gains of all candidates in these words are computed again, before the next is added.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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

Bounds = Sequence[int]
"""Where the tokens of a word start, and where the last one ends."""


class Segmenter(Protocol):
    """A model that segments words, and whose vocabulary grows."""

    def segment(self, word: str) -> Bounds | None:
        """Return the bounds of the tokens of a word; None if it contains an unknown token."""
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
        segmented = [(word, count, segmenter.segment(word)) for word, count in words.items()]
        known = [(word, count, bounds) for word, count, bounds in segmented if bounds is not None]
        self._num_tokens = sum(count * (len(bounds) - 1) for _, count, bounds in known)
        known.sort(key=lambda item: (-item[1] * (len(item[2]) - 2), item[0]))
        divided = [item for item in known[:MAX_WORDS] if len(item[2]) > 2]
        self._words = [word for word, _, _ in divided]
        self._counts = [count for _, count, _ in divided]
        self._bounds: list[Bounds] = [bounds for _, _, bounds in divided]
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
            bounds = {n: self._segment(n) for n in self._words_with(self._segmenter.text(token))}
            # Also counts words in which the token divides others, and so may do harm.
            exact_gain = sum(
                self._counts[n] * (len(self._bounds[n]) - len(new)) for n, new in bounds.items()
            )
            next_gain = -self._heap[0][0] if self._drop_outdated() else 0
            if exact_gain <= 0 or exact_gain < min(gain, next_gain):
                self._segmenter.remove(token)
                self._gains[token] = exact_gain
                if exact_gain > 0:
                    heappush(self._heap, (-exact_gain, token))
                continue
            self.tokens.append(token)
            self._replace(bounds)

    def remove_unused(self) -> bool:
        """Remove added tokens that no word uses any more; return whether there are any."""
        used = {
            self._segmenter.name(word, begin, end)
            for word, bounds in zip(self._words, self._bounds, strict=True)
            for begin, end in pairwise(bounds)
        }
        unused = [token for token in self.tokens if token not in used]
        for token in unused:
            self._segmenter.remove(token)
        self.tokens = [token for token in self.tokens if token in used]
        return bool(unused)

    def _segment(self, index: int) -> Bounds:
        bounds = self._segmenter.segment(self._words[index])
        assert bounds is not None, "more tokens make no word unknown"
        return bounds

    def _drop_outdated(self) -> bool:
        """Drop candidates from the heap whose gain has changed; return whether any is left."""
        while self._heap and self._gains[self._heap[0][1]] != -self._heap[0][0]:
            heappop(self._heap)
        return bool(self._heap) and self._heap[0][0] < 0

    def _replace(self, bounds: Mapping[int, Bounds]) -> None:
        """Replace the tokens of words by index, and update the candidates in these words."""
        changed = {n: new for n, new in bounds.items() if new != self._bounds[n]}
        candidates: set[str] = set()
        for index, new in changed.items():
            candidates.update(self._count_candidates(index, -1))
            self._num_tokens += self._counts[index] * (len(new) - len(self._bounds[index]))
            self._bounds[index] = new
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
        word, bounds = self._words[index], self._bounds[index]
        for first, begin in enumerate(bounds):
            for last in range(first + 2, len(bounds)):
                if bounds[last] - begin > MAX_TOKEN_LENGTH:
                    break
                token = self._segmenter.name(word, begin, bounds[last])
                if self._segmenter.may_add(token):
                    yield token, last - first - 1

    def _words_with(self, text: str) -> list[int]:
        """Return the indices of all words that contain a text of two characters or more."""
        bigrams = (text[n : n + 2] for n in range(len(text) - 1))
        rarest = min((self._words_by_bigram[bigram] for bigram in bigrams), key=len)
        return [index for index in rarest if text in self._words[index]]
