"""Substitutes for words: of the same part of speech, between the same neighbours, or equally
frequent."""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from bertwright.data.annotations.tagger import Tagger
from bertwright.data.tokenization.words import word_spans

UNKNOWN, BOUNDARY = -1, 0
"""The id of a word of no text, and of the word before and after a text."""

Spans = Sequence[tuple[int, int]]


class SimilarWords:
    """A table of the words of texts, to substitute words by similar ones.

    Words are similar if they share a context key: the part of speech, or the two neighbours.
    Substitutes are drawn by their frequency in that context. With neighbours, a word without
    similar ones is substituted by an equally frequent one, whose count has as many binary digits.
    """

    def __init__(self, texts: Iterable[str], tagger: Tagger | None = None) -> None:
        self._tagger = tagger
        self._word_ids: dict[str, int] = {"": BOUNDARY}
        self._tag_ids: dict[str, int] = {}
        keys, word_ids = array("q"), array("i")
        for text in texts:
            spans = word_spans(text)
            words = [text[start:stop] for start, stop in spans]
            for word in words:
                self._word_ids.setdefault(word, len(self._word_ids))
            for tag in self._tags_at(text, spans):
                self._tag_ids.setdefault(tag, len(self._tag_ids))
            for word, key in zip(words, self.context_keys(text, spans), strict=True):
                if word[0].isalnum():
                    keys.append(key)
                    word_ids.append(self._word_ids[word])
        self._words = list(self._word_ids)
        order = np.lexsort((np.array(word_ids), np.array(keys)))
        self._sorted_keys, self._word_ids_by_key = np.array(keys)[order], np.array(word_ids)[order]
        counts = np.bincount(np.array(word_ids), minlength=len(self._words))
        self._frequency_bins = np.frexp(counts)[1]
        self._word_ids_by_frequency = np.argsort(self._frequency_bins, kind="stable")
        self._sorted_bins = self._frequency_bins[self._word_ids_by_frequency]

    def context_keys(self, text: str, spans: Spans) -> Sequence[int]:
        """Return the context keys of the words of a text."""
        if self._tagger is not None:
            return [self._tag_ids.get(tag, UNKNOWN) for tag in self._tags_at(text, spans)]
        words = (self._word_ids.get(text[start:stop], UNKNOWN) for start, stop in spans)
        word_ids = [BOUNDARY, *words, BOUNDARY]
        # One number of two below 2^31.
        return [
            UNKNOWN if UNKNOWN in (before, after) else (before << 31) + after
            for before, after in zip(word_ids, word_ids[2:], strict=False)
        ]

    def substitute(self, word: str, key: int, random_value: float) -> str:
        """Return a similar word for a random value in [0, 1); the word itself if there is none."""
        word_id = self._word_ids.get(word, UNKNOWN)
        start, stop = (
            np.searchsorted(self._sorted_keys, [key, key + 1]) if key != UNKNOWN else (0, 0)
        )
        similar = self._word_ids_by_key[start:stop]
        similar = similar[similar != word_id]
        if not len(similar) and word_id != UNKNOWN and self._tagger is None:
            similar = self._equally_frequent(word_id)
        if not len(similar):
            return word
        return self._words[int(similar[int(random_value * len(similar))])]

    def _equally_frequent(self, word_id: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        digits = self._frequency_bins[word_id]
        start, stop = np.searchsorted(self._sorted_bins, [digits, digits + 1])
        similar = self._word_ids_by_frequency[start:stop]
        return similar[similar != word_id]

    def _tags_at(self, text: str, spans: Spans) -> list[str]:
        """Return the part of speech of each word; nothing without a tagger."""
        if self._tagger is None:
            return []
        tokens = list(self._tagger.parts_of_speech(text)) or [(0, "")]
        starts = np.array([start for start, _ in tokens], np.int64)
        indices = np.searchsorted(starts, [start for start, _ in spans], side="right") - 1
        return [tokens[max(index, 0)][1] for index in indices.tolist()]
