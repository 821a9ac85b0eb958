"""Masking and replacement of words, and sampling of n-grams (Tang et al. 2019).

Words are replaced by words of the same part of speech, with the same neighbours, or of the same
frequency.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bertwright.compression.distillation.augmentation.augmentation import (
    Augmentation,
    AugmentationFunction,
    AugmentationInputs,
)
from bertwright.core.rng import integers, uniform
from bertwright.data.annotations.tagger import Tagger
from bertwright.data.tokenization.words import word_spans


class WordAugmentation(Augmentation):
    """An augmentation that masks words or replaces them by words of the same part of speech.

    Afterwards, with ``ngram_probability``, an n-gram of at most ``max_ngram`` words replaces the
    whole text. Copies without any original word are dropped. ``tagger`` is a spaCy pipeline.
    Without a tagger, a word is replaced by a word with the same neighbours in the training texts,
    or else by an equally frequent word.
    """

    kind: Literal["words"] = "words"
    mask_probability: float = Field(default=0.1, ge=0, le=1)
    replace_probability: float = Field(default=0.1, ge=0, le=1)
    ngram_probability: float = Field(default=0.25, ge=0, le=1)
    max_ngram: int = Field(default=5, ge=1, le=65_536)
    tagger: str | None = None

    @model_validator(mode="after")
    def _check_probabilities(self) -> Self:
        if self.mask_probability + self.replace_probability > 1:
            raise ValueError("mask_probability and replace_probability must add up to at most 1")
        return self

    @property
    def inserts_masks(self) -> bool:
        return self.mask_probability > 0

    def build(self, inputs: AugmentationInputs) -> AugmentationFunction:
        tagger = None if self.tagger is None else Tagger(self.tagger)
        words = SimilarWords(inputs.texts, tagger) if self.replace_probability else None
        return _WordAugmenter(self, words, inputs.mask_token, inputs.seed)


@dataclass(frozen=True)
class _WordAugmenter:
    config: WordAugmentation
    similar_words: "SimilarWords | None"
    mask_token: str
    seed: int

    def __call__(self, texts: Sequence[str]) -> list[list[str | None]]:
        return [self._copies(text) for text in texts]

    def _copies(self, text: str) -> list[str | None]:
        spans = word_spans(text)
        words = [text[start:stop] for start, stop in spans]
        keys = [] if self.similar_words is None else self.similar_words.context_keys(text, spans)
        return [self._copy(text, spans, words, keys, n) for n in range(self.config.num_copies)]

    def _copy(
        self,
        text: str,
        spans: Sequence[tuple[int, int]],
        words: Sequence[str],
        keys: Sequence[int],
        copy_index: int,
    ) -> str | None:
        config, key = self.config, self.config.random_key(self.seed, text)
        actions, choices = (uniform(key, copy_index, n, np.arange(len(words))) for n in (0, 1))
        new = list(words)
        threshold = config.mask_probability + config.replace_probability
        for index, word in enumerate(words):
            if not word[0].isalnum():
                continue
            if actions[index] < config.mask_probability:
                new[index] = self.mask_token
            elif self.similar_words is not None and actions[index] < threshold:
                new[index] = self.similar_words.substitute(word, keys[index], float(choices[index]))
        first, stop = 0, len(words)
        if words and uniform(key, copy_index, 2) < config.ngram_probability:
            size = 1 + int(integers(key, min(config.max_ngram, len(words)), copy_index, 3))
            first = int(integers(key, len(words) - size + 1, copy_index, 4))
            stop = first + size
        kept = (new[n] == words[n] and words[n][0].isalnum() for n in range(first, stop))
        return _join_words(text, spans, new, first, stop) if any(kept) else None


def _join_words(
    text: str, spans: Sequence[tuple[int, int]], words: Sequence[str], first: int, stop: int
) -> str:
    """Join the words from ``first`` to ``stop`` with the characters between them in the text.

    At the ends of the text, the characters before or after the words are included.
    """
    parts = [text[: spans[0][0]]] if first == 0 else []
    for index in range(first, stop):
        parts.append(words[index])
        is_last = index + 1 == len(spans)
        if is_last or index + 1 < stop:
            parts.append(text[spans[index][1] : None if is_last else spans[index + 1][0]])
    return "".join(parts)


UNKNOWN, BOUNDARY = -1, 0
"""Ids of a word that is in no text, and of the position before and after a text."""

Spans = Sequence[tuple[int, int]]


class SimilarWords:
    """A table of the words in some texts, for replacing words by similar ones.

    Words are similar if they share a context key: the part of speech, or the two neighbours.
    Substitutes are drawn by their frequency in that context. With neighbours as keys, a word
    without similar words is replaced by an equally frequent word: its count has as many binary
    digits.
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
        # Combines two numbers below 2^31 into one.
        return [
            UNKNOWN if UNKNOWN in (before, after) else (before << 31) + after
            for before, after in zip(word_ids, word_ids[2:], strict=False)
        ]

    def substitute(self, word: str, key: int, random_value: float) -> str:
        """Return a similar word for a random value in [0, 1); the word itself if it has none."""
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
        """Return the part of speech of each word; empty without a tagger."""
        if self._tagger is None:
            return []
        tokens = list(self._tagger.parts_of_speech(text)) or [(0, "")]
        starts = np.array([start for start, _ in tokens], np.int64)
        indices = np.searchsorted(starts, [start for start, _ in spans], side="right") - 1
        return [tokens[max(index, 0)][1] for index in indices.tolist()]
