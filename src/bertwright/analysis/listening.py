"""One pass over texts for all who listen: values are handed on batch by batch, and nothing of them
is kept but what a listener makes of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from bertwright.analysis.findings import Found
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import Mark, ReadText
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.stream import Coordinates
from bertwright.model.reading import read_batches

PLACES_AT_ONCE = 1024
"""Of a batch, which bounds what attention weights take: as many numbers for every layer and head as
places times length."""


@dataclass(frozen=True)
class Heard:
    """A batch: its texts, their numbers, and the values that came by; L places in a row."""

    texts: Sequence[ReadText]
    numbers: Sequence[int]
    values: Mapping[str, Tensor]
    real: Tensor
    """(B, L) bool."""
    even: Callable[[int], Tensor]
    """Of a layer the weights of a head that sees all that may be seen alike: (B, 1 or H, L, L)."""

    @property
    def lengths(self) -> Tensor:
        """(B,) float32, the real places of every text."""
        return self.real.sum(1).float()

    def of(self, layer: int, name: str) -> Tensor:
        """The value of that name in a layer."""
        return self.values[f"blocks.{layer}.{name}"]

    def attention(self, layer: int) -> Tensor:
        """The weights of a layer (B, H, L, L), those of padding 0."""
        weights = self.of(layer, "attention.weights")
        return weights if self.real.all() else weights * self.real[:, None, :, None]

    def marked(self, mark: Mark) -> Tensor:
        """(B, L) bool: the places of a kind."""
        found = torch.zeros(self.real.shape, dtype=torch.bool)
        for row, text in enumerate(self.texts):
            found[row, : len(text)] = torch.from_numpy(text.marks[mark])
        return found.to(self.real.device)

    def from_words(self, row: int, weights: Tensor) -> Tensor:
        """Attention of a text from words to places, (H, W, T), of its weights (H, L, L): the mean
        over the pieces of a word (Clark et al. 2019, section 4.1)."""
        member = self._member(row, weights)
        size = len(member)
        return (member / member.sum(0)).T @ weights[:, :size, :size]

    def between_words(self, row: int, weights: Tensor) -> Tensor:
        """The same from word to word, (H, W, W): to the sum of the pieces of each."""
        return self.from_words(row, weights) @ self._member(row, weights)

    def _member(self, row: int, like: Tensor) -> Tensor:
        """Which pieces are part of which words, (T, W)."""
        text = self.texts[row]
        own = torch.from_numpy(text.word)
        member = torch.nn.functional.one_hot(own.clamp(min=0), len(text.words))
        return (member * (own >= 0)[:, None]).to(like)

    def parts(self) -> Tensor:
        """(B, L) int64: which text of a pair each place belongs to, -1 for padding."""
        found = torch.full(self.real.shape, -1)
        for row, text in enumerate(self.texts):
            found[row, : len(text)] = torch.tensor(text.parts)
        return found.to(self.real.device)


class Listener(Protocol):
    """Makes something of values as they come by."""

    @property
    def sites(self) -> Sequence[str]:
        """The values that it wants."""
        ...

    def hear(self, heard: Heard) -> None:
        """Take what is wanted of a batch."""
        ...

    def found(self) -> Found:
        """What came of it."""
        ...


def listen(subject: Subject, texts: Sequence[ReadText], listeners: Sequence[Listener]) -> None:
    """Read the texts once, and let all listeners hear."""
    sites = sorted({site for listener in listeners for site in listener.sites})
    for heard in heard_batches(subject, texts, sites):
        for listener in listeners:
            listener.hear(heard)


@torch.no_grad()
def heard_batches(
    subject: Subject, texts: Sequence[ReadText], sites: Sequence[str]
) -> Iterator[Heard]:
    """Read the texts once, a batch at a time, the longest first."""
    segmented = bool(texts) and texts[0].segmented
    batches = read_batches(
        [text.pieces for text in texts],
        subject.tokenizer.specials.pad,
        subject.text_model.device,
        [text.parts for text in texts] if segmented else None,
        PLACES_AT_ONCE,
    )
    for batch in batches:
        document = batch.coordinates.document
        real = (batch.pieces >= 0) if document is None else document >= 0
        with subject.encoder.record(*sites) as values:
            subject.encoder(batch.pieces, batch.coordinates)
        numbers: list[int] = batch.numbers.tolist()
        even = _even(subject.encoder, batch.coordinates, real)
        yield Heard([texts[n] for n in numbers], numbers, values, real, even)


def _even(encoder: Encoder, coordinates: Coordinates, real: Tensor) -> Callable[[int], Tensor]:
    @cache
    def even(layer: int) -> Tensor:
        seen = (encoder.seen(layer, coordinates) & real[:, None, :, None]).float()
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)

    return even
