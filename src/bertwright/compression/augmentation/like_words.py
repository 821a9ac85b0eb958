"""Words that could stand in the place of a word: of the same part of speech, between the same
neighbours, or as frequent."""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from bertwright.text.tagging import Tagger
from bertwright.text.words import word_spans

UNKNOWN, EDGE = -1, 0
"""The number of a word that no text holds, and of what stands beyond the ends of a text."""

Spans = Sequence[tuple[int, int]]


class LikeWords:
    """Of texts, whose words are counted.

    Every word has a key, by which others are like it: the number of its part of speech, or that of
    the two words around it. Of like words those come more often that stand there more often. With
    neighbours, a word that none is like is taken for one that is as frequent: whose count has as
    many binary digits.
    """

    def __init__(self, texts: Iterable[str], tagger: Tagger | None = None) -> None:
        self._tagger = tagger
        self._numbers: dict[str, int] = {"": EDGE}
        self._tags: dict[str, int] = {}
        keys, numbers = array("q"), array("i")
        for text in texts:
            spans = word_spans(text)
            words = [text[start:stop] for start, stop in spans]
            for word in words:
                self._numbers.setdefault(word, len(self._numbers))
            for tag in self._tags_at(text, spans):
                self._tags.setdefault(tag, len(self._tags))
            for word, of in zip(words, self.keys(text, spans), strict=True):
                if word[0].isalnum():
                    keys.append(of)
                    numbers.append(self._numbers[word])
        self._words = list(self._numbers)
        order = np.lexsort((np.array(numbers), np.array(keys)))
        self._keys, self._like = np.array(keys)[order], np.array(numbers)[order]
        counts = np.bincount(np.array(numbers), minlength=len(self._words))
        self._digits = np.frexp(counts)[1]
        self._by_digits = np.argsort(self._digits, kind="stable")
        self._in_order = self._digits[self._by_digits]

    def keys(self, text: str, spans: Spans) -> Sequence[int]:
        """Of the words of a text, which stand there."""
        if self._tagger is not None:
            return [self._tags.get(tag, UNKNOWN) for tag in self._tags_at(text, spans)]
        words = (self._numbers.get(text[start:stop], UNKNOWN) for start, stop in spans)
        numbers = [EDGE, *words, EDGE]
        # Of two numbers below 2^31 one.
        return [
            UNKNOWN if UNKNOWN in (before, behind) else (before << 31) + behind
            for before, behind in zip(numbers, numbers[2:], strict=False)
        ]

    def other(self, word: str, of: int, drawn: float) -> str:
        """A word like one with this key, by a number in [0, 1); the same where there is none."""
        own = self._numbers.get(word, UNKNOWN)
        start, stop = np.searchsorted(self._keys, [of, of + 1]) if of != UNKNOWN else (0, 0)
        like = self._like[start:stop]
        like = like[like != own]
        if not len(like) and own != UNKNOWN and self._tagger is None:
            like = self._as_frequent(own)
        return self._words[int(like[int(drawn * len(like))])] if len(like) else word

    def _as_frequent(self, own: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        digits = self._digits[own]
        start, stop = np.searchsorted(self._in_order, [digits, digits + 1])
        like = self._by_digits[start:stop]
        return like[like != own]

    def _tags_at(self, text: str, spans: Spans) -> list[str]:
        """The part of speech of the word at each of these places; none without a tagger."""
        if self._tagger is None:
            return []
        tokens = list(self._tagger.parts_of_speech(text)) or [(0, "")]
        starts = np.array([start for start, _ in tokens], np.int64)
        places = np.searchsorted(starts, [start for start, _ in spans], side="right") - 1
        return [tokens[max(place, 0)][1] for place in places.tolist()]
