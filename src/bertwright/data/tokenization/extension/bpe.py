"""New tokens of a byte-pair encoding: its training goes on where it ended (Sennrich et al. 2016).

The new merges come after all others, so they change only text that contains their results. A merge
whose result is a token that already exists would change other text, and is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from bertwright.data.tokenization.extension.new_token import MIN_COUNT, NewToken
from bertwright.data.tokenization.pruning import is_byte_token

Merge = tuple[str, str]


def extend_bpe(
    model: Mapping[str, Any],
    words: Mapping[str, int],
    num_tokens: int,
    tokenize: Callable[[str], list[str]],
) -> tuple[list[NewToken], list[Merge]]:
    """Return new tokens of a BPE model, given as settings, and the merges that make them.

    ``tokenize`` returns the tokens of a word. A new token may have several merges.
    """
    training = _MergeTraining(words, tokenize, model)
    vocabulary, parts, merges = model["vocab"], dict[str, tuple[str, ...]](), list[Merge]()
    while (merge := training.best_merge()) is not None:
        result = training.merged(merge)
        if result in vocabulary:
            training.forbid(merge)
            continue
        if result not in parts and len(parts) == num_tokens:
            break
        parts.setdefault(result, tuple(old for part in merge for old in parts.get(part, (part,))))
        merges.append(merge)
        training.apply(merge)
    return [NewToken(token, old) for token, old in parts.items()], merges


class _MergeTraining:
    """The words of a text as tokens, and the counts of pairs of neighbouring tokens."""

    def __init__(
        self,
        words: Mapping[str, int],
        tokenize: Callable[[str], list[str]],
        model: Mapping[str, Any],
    ) -> None:
        self._prefix: str = model["continuing_subword_prefix"] or ""
        self._unknown = model["unk_token"]
        self._ids: dict[str, int] = dict(model["vocab"])
        self._forbidden: set[Merge] = set()
        tokenized = ((tokenize(word), words[word]) for word in sorted(words))
        divided = [(tokens, count) for tokens, count in tokenized if len(tokens) > 1]
        self._words = [tokens for tokens, _ in divided]
        self._counts = [count for _, count in divided]
        self._pairs: Counter[Merge] = Counter()
        self._words_by_pair: dict[Merge, set[int]] = {}
        for index in range(len(self._words)):
            self._count_pairs(index, 1)
        self._heap = [self._heap_entry(pair) for pair in self._pairs]
        heapify(self._heap)

    def best_merge(self) -> Merge | None:
        """Return the most frequent pair; None if none is frequent enough."""
        while self._heap:
            count, pair = -self._heap[0][0], self._heap[0][2]
            if count < MIN_COUNT:
                return None
            if count == self._pairs[pair] and pair not in self._forbidden:
                return pair
            heappop(self._heap)
        return None

    def merged(self, merge: Merge) -> str:
        """Return the token that a merge makes."""
        return merge[0] + merge[1].removeprefix(self._prefix)

    def forbid(self, merge: Merge) -> None:
        """Leave a merge out from now on."""
        self._forbidden.add(merge)

    def apply(self, merge: Merge) -> None:
        """Merge a pair in all words."""
        self._ids.setdefault(self.merged(merge), len(self._ids))
        changed: set[Merge] = set()
        for index in sorted(self._words_by_pair.pop(merge)):
            changed.update(self._count_pairs(index, -1))
            self._words[index] = list(self._merge_word(self._words[index], merge))
            changed.update(self._count_pairs(index, 1))
        for pair in changed:
            if self._pairs[pair] > 0:
                heappush(self._heap, self._heap_entry(pair))

    def _heap_entry(self, pair: Merge) -> tuple[int, tuple[int, int], Merge]:
        """Return a pair after its count and its ids, which break ties as in the library."""
        return -self._pairs[pair], (self._ids[pair[0]], self._ids[pair[1]]), pair

    def _merge_word(self, tokens: list[str], merge: Merge) -> Iterator[str]:
        index = 0
        while index < len(tokens):
            if tuple(tokens[index : index + 2]) == merge:
                yield self.merged(merge)
                index += 2
            else:
                yield tokens[index]
                index += 1

    def _count_pairs(self, index: int, sign: int) -> set[Merge]:
        """Add the pairs of a word to the counts, or subtract them; return the pairs."""
        pairs = [
            pair for pair in pairwise(self._words[index]) if not any(map(self._is_fixed, pair))
        ]
        for pair in pairs:
            self._pairs[pair] += sign * self._counts[index]
            if sign > 0:
                self._words_by_pair.setdefault(pair, set()).add(index)
        return set(pairs)

    def _is_fixed(self, token: str) -> bool:
        """Return whether a token stands for what has no token, and so cannot be merged."""
        return token == self._unknown or is_byte_token(token)
