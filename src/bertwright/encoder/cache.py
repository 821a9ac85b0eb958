"""Keys and values of places that were read, so that places behind them are read alone."""

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from bertwright.encoder.memory import Carried, num_content
from bertwright.encoder.stream import Coordinates


class KeysAndValues:
    """What one attention has made of earlier places: keys and values (B, H, M, d), the keys as
    they are before any rotation."""

    def __init__(self, longest: int | None) -> None:
        self._longest = longest
        self._parts: tuple[Tensor, Tensor] | None = None
        self._source: tuple[Tensor, Tensor] | None = None
        self.num_asking = 0

    def extended(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, M + L, d) with those that were kept in front. All are kept for the
        next pass, but for those of places that ask and those that have gone out of reach."""
        if self._parts is not None:
            key = torch.cat((self._parts[0], key), dim=2)
            value = torch.cat((self._parts[1], value), dim=2)
        kept = _within_reach(key.shape[2], self.num_asking, self._longest)
        self._parts = key[:, :, kept], value[:, :, kept]
        return key, value

    def once(self, project: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, d) of what is read from, which stay the same."""
        if self._source is None:
            self._source = project()
        return self._source

    def select(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self._parts, self._source = _selected(self._parts, rows), _selected(self._source, rows)


Past = Tensor | Carried | KeysAndValues
"""What a block knows of earlier places: its input there (B, M, D), what a recurrent mixer has come
to, or keys and values."""


class Cache:
    """What a text that is read in parts leaves for the next part, where places see none behind
    them: then the parts are what one pass over the whole is.

    It stands where a ``Memory`` may stand. Unlike one it keeps keys and values, not states, and
    every coordinate as it was: any scheme of positions can be read in parts. All passes must state
    the same coordinates. ``longest`` is how many places are kept, for a rule that sees no further;
    None keeps all.
    """

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest
        self._kept: dict[int, KeysAndValues] = {}
        self._coordinates: Coordinates | None = None

    def before(self, coordinates: Coordinates) -> Coordinates:
        """The coordinates of keys: of the kept places, then of the rows, which are kept in turn."""
        keys = coordinates
        if self._coordinates is not None:
            keys = _joined(self._coordinates, keys)
        num_asking = coordinates.place.shape[1] - num_content(coordinates)
        kept = _within_reach(keys.place.shape[1], num_asking, self._longest)
        self._coordinates = keys.each(lambda own: own[:, kept])
        return keys

    def recall(self, block: int, x: Tensor, coordinates: Coordinates) -> KeysAndValues:
        """What a block has kept, and is to keep of a pass over rows with these coordinates."""
        found = self._kept.setdefault(block, KeysAndValues(self._longest))
        found.num_asking = x.shape[1] - num_content(coordinates)
        return found

    def select(self, rows: Tensor) -> None:
        """Go on with these rows (N,) int64 only."""
        for parts in self._kept.values():
            parts.select(rows)
        if self._coordinates is not None:
            self._coordinates = self._coordinates.select(rows)


def _selected(parts: tuple[Tensor, Tensor] | None, rows: Tensor) -> tuple[Tensor, Tensor] | None:
    if parts is None:
        return None
    return parts[0].index_select(0, rows), parts[1].index_select(0, rows)


def _within_reach(length: int, num_asking: int, longest: int | None) -> slice:
    end = length - num_asking
    return slice(0 if longest is None else max(0, end - longest), end)


def _joined(kept: Coordinates, new: Coordinates) -> Coordinates:
    """The coordinates of kept places, then those of new ones; what holds for one row of either may
    hold for all of the other's."""
    pairs = ((getattr(kept, f.name), getattr(new, f.name)) for f in fields(Coordinates))
    return Coordinates(*(None if pair[0] is None else _side_by_side(*pair) for pair in pairs))  # type: ignore[arg-type]


def _side_by_side(first: Tensor, second: Tensor) -> Tensor:
    number = max(len(first), len(second))
    return torch.cat([part.expand(number, -1) for part in (first, second)], dim=1)
