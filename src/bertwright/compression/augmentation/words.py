"""Words that are hidden or exchanged for others like them, and stretches of texts (Tang et al.
2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bertwright.compression.augmentation.augmentation import Augmentation, Augmenter, Given
from bertwright.compression.augmentation.like_words import LikeWords
from bertwright.randomness import integers, uniform
from bertwright.text.tagging import Tagger
from bertwright.text.words import word_spans


class ByWords(Augmentation):
    """A word is hidden with the chance ``hidden``, or exchanged with the chance ``exchanged`` for
    one of the same part of speech; then a stretch of at most ``longest`` words stands for the whole
    with the chance ``stretch``. What holds no word of the text any more is left out.

    Parts of speech are what the spaCy pipeline ``tagger`` says. Without one a word is exchanged for
    one that stands between the same neighbours in the training texts, or where none does for one
    that is as frequent.
    """

    kind: Literal["words"] = "words"
    hidden: float = Field(default=0.1, ge=0, le=1)
    exchanged: float = Field(default=0.1, ge=0, le=1)
    stretch: float = Field(default=0.25, ge=0, le=1)
    longest: int = Field(default=5, ge=1, le=65_536)
    tagger: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.hidden + self.exchanged > 1:
            raise ValueError("hidden and exchanged are chances of one draw: let them add up to 1")
        return self

    @property
    def hides(self) -> bool:
        return self.hidden > 0

    def augmenter(self, given: Given) -> Augmenter:
        tagger = None if self.tagger is None else Tagger(self.tagger)
        like = LikeWords(given.texts, tagger) if self.exchanged else None
        return _Changing(self, like, given.hidden, given.seed)


@dataclass(frozen=True)
class _Changing:
    """Of :class:`ByWords`."""

    choice: ByWords
    like: LikeWords | None
    hidden: str
    seed: int

    def __call__(self, texts: Sequence[str]) -> list[list[str | None]]:
        return [self._copies(text) for text in texts]

    def _copies(self, text: str) -> list[str | None]:
        spans = word_spans(text)
        words = [text[start:stop] for start, stop in spans]
        keys = [] if self.like is None else self.like.keys(text, spans)
        return [self._copy(text, spans, words, keys, n) for n in range(self.choice.copies)]

    def _copy(
        self,
        text: str,
        spans: Sequence[tuple[int, int]],
        words: Sequence[str],
        keys: Sequence[int],
        number: int,
    ) -> str | None:
        choice, draws = self.choice, self.choice.draws(self.seed, text)
        own, which = (uniform(draws, number, n, np.arange(len(words))) for n in (0, 1))
        new = list(words)
        for place, word in enumerate(words):
            if not word[0].isalnum():
                continue
            if own[place] < choice.hidden:
                new[place] = self.hidden
            elif self.like is not None and own[place] < choice.hidden + choice.exchanged:
                new[place] = self.like.other(word, keys[place], float(which[place]))
        first, stop = 0, len(words)
        if words and uniform(draws, number, 2) < choice.stretch:
            size = 1 + int(integers(draws, min(choice.longest, len(words)), number, 3))
            first = int(integers(draws, len(words) - size + 1, number, 4))
            stop = first + size
        left = (new[n] == words[n] and words[n][0].isalnum() for n in range(first, stop))
        return _joined(text, spans, new, first, stop) if any(left) else None


def _joined(
    text: str, spans: Sequence[tuple[int, int]], words: Sequence[str], first: int, stop: int
) -> str:
    """These words of a text, with what stands between them in it; at both ends of the whole also
    what stands before and behind."""
    parts = [text[: spans[0][0]]] if first == 0 else []
    for place in range(first, stop):
        parts.append(words[place])
        last = place + 1 == len(spans)
        if last or place + 1 < stop:
            parts.append(text[spans[place][1] : None if last else spans[place + 1][0]])
    return "".join(parts)
