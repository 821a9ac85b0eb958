"""Rows of text that grow at their end, and what a model says comes next."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bertwright.encoder.cache import Cache
from bertwright.encoder.stream import Coordinates, Source
from bertwright.encoder.visibility import Visibility
from bertwright.model.model import Model
from bertwright.model.reading import padded

Pieces = Sequence[Sequence[int]]


class GrowingRows(Protocol):
    """Rows of pieces that go on together."""

    def logits(self) -> Tensor:
        """(B, V): of the piece that comes next in every row."""
        ...

    def append(self, pieces: Sequence[int]) -> None:
        """One more piece (B,) for every row."""
        ...

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows only, in this order; one may stand there several times."""
        ...


class CachedRows:
    """Rows of which every piece is read once.

    Shorter ones have padding in front, so that all of them end at the same place. ``reach`` is how
    many places back the rule sees at most, None for all; ``language`` a number among those that the
    encoder knows.
    """

    def __init__(
        self,
        model: Model,
        rows: Pieces,
        rule: Visibility,
        padding: int,
        reach: int | None,
        language: int | None,
    ) -> None:
        self._model, self._rule, self._language = model, rule, language
        self._cache = Cache(reach)
        width = max(map(len, rows))
        device = model.embedding.device
        front = torch.tensor([width - len(row) for row in rows], device=device)[:, None]
        place = torch.arange(width, device=device)[None]
        pieces = [[padding] * (width - len(row)) + list(row) for row in rows]
        self._lengths = width - front
        self._width = width
        coordinates = Coordinates(
            place, (place - front).clamp(min=0), document=torch.where(place < front, -1, 0)
        )
        self._states = self._read(torch.tensor(pieces, device=device), coordinates)

    def logits(self) -> Tensor:
        return self._model.logits(self._states)

    def append(self, pieces: Sequence[int]) -> None:
        own = torch.tensor(pieces, device=self._lengths.device)[:, None]
        place = torch.full_like(own[:1], self._width)
        coordinates = Coordinates(place, self._lengths, document=torch.zeros_like(own))
        self._states = self._read(own, coordinates)
        self._lengths = self._lengths + 1
        self._width += 1

    def select(self, rows: Sequence[int]) -> None:
        kept = torch.tensor(rows, device=self._lengths.device)
        self._lengths, self._states = self._lengths[kept], self._states[kept]
        self._cache.select(kept)

    def _read(self, pieces: Tensor, coordinates: Coordinates) -> Tensor:
        """The states (B, D) which say what comes behind pieces (B, L)."""
        encoder, spoken = self._model.encoder, coordinates.spoken(pieces, self._language)
        return encoder(pieces, spoken, self._rule, memory=self._cache)[:, -1]


class AskingRows(CachedRows):
    """The same of a model that is asked by places which do not know what stands there.

    The prompt comes first, all at once, then every piece in its turn; behind what is read stands
    the place that asks for the next, which is not kept.
    """

    _turn = 0

    def _read(self, pieces: Tensor, coordinates: Coordinates) -> Tensor:
        def behind(own: Tensor | None, more: int) -> Tensor:
            assert own is not None
            return torch.cat((own, own[:, -1:] + more), dim=1)

        turn = torch.full_like(pieces, self._turn)
        self._turn += 1
        asking = behind(torch.zeros_like(pieces), 1).bool()
        asked = Coordinates(
            behind(coordinates.place, 1),
            behind(coordinates.position, 1),
            document=behind(coordinates.document, 0),
            order=behind(turn, 1),
            asking=asking,
        )
        return super()._read(behind(pieces, 0).masked_fill(asking, 0), asked)


class DecodedRows:
    """Rows of a decoder: what it reads from is read once by the encoder, and every piece once.

    ``begins`` (B,) is the piece that stands before each, ``first`` (B,) the position of the first;
    ``read`` and ``said`` are the languages of both sides.
    """

    def __init__(
        self,
        model: Model,
        sources: Pieces,
        begins: Sequence[int],
        first: Sequence[int],
        padding: int,
        read: int | None,
        said: int | None,
    ) -> None:
        assert model.decoder is not None, "only a recipe that decodes has such rows"
        self._model, self._decoder, self._cache = model, model.decoder, Cache()
        device, width = model.embedding.device, max(map(len, sources))
        batch = padded(sources, None, np.arange(len(sources)), width, padding, device)
        coordinates = batch.coordinates.spoken(batch.pieces, read)
        self._source = Source(model(batch.pieces, coordinates), coordinates)
        self._said = said
        self._first = torch.tensor(first, device=device)[:, None]
        self._width = 0
        self.append(begins)

    def logits(self) -> Tensor:
        return self._model.logits(self._states)

    def append(self, pieces: Sequence[int]) -> None:
        own = torch.tensor(pieces, device=self._first.device)[:, None]
        place = torch.full_like(own[:1], self._width)
        at = Coordinates(place, self._first + self._width, document=torch.zeros_like(own))
        at = at.spoken(own, self._said)
        states = self._decoder(own, at, memory=self._cache, source=self._source)
        self._states, self._width = states[:, -1], self._width + 1

    def select(self, rows: Sequence[int]) -> None:
        kept = torch.tensor(rows, device=self._first.device)
        self._first, self._states = self._first[kept], self._states[kept]
        self._source = self._source.select(kept)
        self._cache.select(kept)


class WholeRows:
    """Rows that are read from their beginning for every piece, by an encoder that keeps nothing.

    Shorter ones have padding behind them.
    """

    def __init__(
        self, model: Model, rows: Pieces, rule: Visibility, padding: int, language: int | None
    ) -> None:
        self._model, self._rule, self._padding = model, rule, padding
        self._language = language
        self._rows = [list(row) for row in rows]

    def logits(self) -> Tensor:
        numbers, width = np.arange(len(self._rows)), max(map(len, self._rows))
        device = self._model.embedding.device
        batch = padded(self._rows, None, numbers, width, self._padding, device)
        coordinates = batch.coordinates.spoken(batch.pieces, self._language)
        states = self._model(batch.pieces, coordinates, self._rule)
        last = torch.tensor(batch.lengths, device=device) - 1
        return self._model.logits(states[torch.arange(len(last), device=device), last])

    def append(self, pieces: Sequence[int]) -> None:
        for row, piece in zip(self._rows, pieces, strict=True):
            row.append(piece)

    def select(self, rows: Sequence[int]) -> None:
        self._rows = [list(self._rows[row]) for row in rows]
