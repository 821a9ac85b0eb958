"""Texts as rows for a model that is used: batches by token budget, whatever the lengths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.text.tokenizers import Specials

TOKEN_BUDGET = 1024
"""Places per batch: enough to keep two cores busy, few enough to stay in their cache."""

SMALL_TOKEN_BUDGET = 2048
"""The same in 8 bits, where a larger part of the time of a batch is not for its places."""


@dataclass(frozen=True)
class ReadBatch:
    """Some of the texts: their numbers, pieces (B, L), coordinates, and lengths (B,)."""

    numbers: NDArray[np.int64]
    pieces: Tensor
    coordinates: Coordinates
    lengths: list[int]


def read_batches(
    rows: Sequence[Sequence[int]],
    padding: int,
    device: torch.device,
    segments: Sequence[Sequence[int]] | None = None,
    budget: int = TOKEN_BUDGET,
    documents: Sequence[Sequence[int]] | None = None,
) -> Iterator[ReadBatch]:
    """Rows of pieces, longest first, as many to a batch as the budget holds.

    ``segments`` gives the segment of every piece where a row is a pair, ``documents`` of which text
    it is where texts of a row do not see each other.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        length = max(int(lengths[order[start]]), 1)
        numbers = order[start : start + max(1, budget // length)]
        start += len(numbers)
        yield padded(rows, segments, numbers, length, padding, device, documents)


def padded(
    rows: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]] | None,
    numbers: NDArray[np.int64],
    length: int,
    padding: int,
    device: torch.device,
    documents: Sequence[Sequence[int]] | None = None,
) -> ReadBatch:
    """The rows with these numbers (B,), each filled up to ``length``."""
    pieces = np.full((len(numbers), length), padding, dtype=np.int64)
    document = np.full((len(numbers), length), -1, dtype=np.int64)
    segment = np.zeros((len(numbers), length), dtype=np.int64)
    for row, number in enumerate(numbers):
        size = len(rows[number])
        pieces[row, :size] = rows[number]
        document[row, :size] = 0 if documents is None else documents[number]
        if segments is not None:
            segment[row, :size] = segments[number]
    moved = torch.from_numpy(pieces).to(device)
    coordinates = Coordinates(
        torch.arange(length, device=device)[None],
        position=None if documents is None else _positions(document).to(device),
        segment=None if segments is None else torch.from_numpy(segment).to(device),
        document=torch.from_numpy(document).to(device) if document.any() else None,
    )
    return ReadBatch(numbers, moved, coordinates, [len(rows[n]) for n in numbers])


def _positions(document: NDArray[np.int64]) -> Tensor:
    """Where in its document every place stands, (B, L)."""
    place = np.arange(document.shape[1])
    begins = np.diff(document, axis=1, prepend=document[:, :1]) != 0
    return torch.from_numpy(place - np.maximum.accumulate(place * begins, axis=1))


def single(ids: Sequence[int], specials: Specials, longest: int | None) -> list[int]:
    """[CLS] text [SEP], cut to the longest row."""
    room = len(ids) if longest is None else longest - 2
    return [specials.start, *ids[:room], specials.end]
