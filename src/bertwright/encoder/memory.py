"""What the rows of one step leave for those of the next: the states before every attention, or the
state that a recurrent mixer has come to."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.encoder.stream import Coordinates


@dataclass(frozen=True)
class Carried:
    """What a recurrent mixer had come to at the end of the rows before, (B, 1, S), None where there
    were none; ``keep`` takes what it has come to now, which stays without gradient."""

    state: Tensor | None
    keep: Callable[[Tensor], None]


class Memory:
    """The last places of the text before each row, as every block saw them (Dai et al. 2019).

    No gradient flows into them. ``states`` holds (B, M, D) by the index of a block; ``document``
    (B, M) int64 is -1 where there was no text.
    """

    def __init__(self, states: dict[int, Tensor], document: Tensor) -> None:
        self.states, self.document = states, document
        self._next: dict[int, Tensor] = {}

    @staticmethod
    def empty(length: int, pieces: Tensor) -> "Memory":
        """Nothing yet, for rows of pieces (B, L)."""
        return Memory({}, pieces.new_full((len(pieces), length), -1))

    def recall(self, block: int, x: Tensor, coordinates: Coordinates) -> Tensor:
        """What a block remembers (B, M, D) where its input is x (B, L, D); x is kept for later, but
        for places that ask."""
        past = self.states.get(block)
        if past is None:
            past = x.new_zeros(len(x), self.document.shape[1], x.shape[2])
        content = x.detach()[:, : num_content(coordinates)]
        self._next[block] = torch.cat((past, content), dim=1)[:, -self.document.shape[1] :]
        return past

    def carried(self, block: int) -> Carried:
        """What a recurrent block goes on from, and where it leaves what it has come to."""

        def keep(state: Tensor) -> None:
            self._next[block] = state.detach()

        return Carried(self.states.get(block), keep)

    def following(self, coordinates: Coordinates) -> "Memory":
        """What is remembered after rows with these coordinates have passed: of their last
        document, which the next rows may go on with as their document 0."""
        own = self._documents(coordinates)[:, : num_content(coordinates)]
        last = own.amax(1, keepdim=True)
        document = torch.cat((self.document.where(last < 1, -1), own), dim=1)
        document = document[:, -self.document.shape[1] :]
        return Memory(self._next, torch.where(document == last.clamp(min=0), 0, -1))

    def before(self, coordinates: Coordinates) -> Coordinates:
        """The coordinates of keys: the remembered places, then those of the rows.

        What is remembered stands before everything, in the text and in any order, and belongs to
        the first segment (as in the released code of XLNet). Of rows that are read backward it
        stands behind their text.
        """
        length = self.document.shape[1]
        place = position = torch.arange(-length, 0, device=self.document.device)[None]
        if coordinates.backward is not None:
            behind_text = num_content(coordinates) - 1 - place
            position = torch.where(coordinates.backward[:, :1], behind_text, place)

        def behind(own: Tensor | None, past: Tensor) -> Tensor | None:
            return None if own is None else torch.cat((past.expand(len(own), -1), own), dim=1)

        nowhere = torch.full_like(place, -1)
        return Coordinates(
            torch.cat((place, coordinates.place), dim=1),
            behind(coordinates.position, position),
            behind(coordinates.segment, torch.zeros_like(place)),
            torch.cat((self.document, self._documents(coordinates)), dim=1),
            behind(coordinates.order, nowhere),
            behind(coordinates.asking, torch.zeros_like(place, dtype=torch.bool)),
        )

    def _documents(self, coordinates: Coordinates) -> Tensor:
        own = coordinates.document
        if own is None:
            own = torch.zeros_like(coordinates.place).expand(len(self.document), -1)
        return own


def num_content(coordinates: Coordinates) -> int:
    """How many places of a row hold text: those that ask come last."""
    length = coordinates.place.shape[1]
    return length if coordinates.asking is None else length - int(coordinates.asking[0].sum())
