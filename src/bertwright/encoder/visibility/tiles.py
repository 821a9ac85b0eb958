"""A rule laid out in tiles: which stretches of keys any place of a stretch of queries may see.

Rows are cut into tiles of ``TILE`` places. A rule says which tiles of keys a tile of queries
touches; only those are computed, under the exact mask. Where a place sees a bounded number of
places the cost of a row is linear in its length. The few tiles that touch much more than the others
(those of places that see everything) are a group of their own. Where a rule leaves places out,
those that are a ``stride`` apart stand side by side, and it costs what a rule without gaps does.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from bertwright.encoder.stream import Coordinates

if TYPE_CHECKING:
    from bertwright.encoder.visibility.rules import Visibility

TILE = 64
"""Places in a tile."""

SHORTEST = 512
"""Rows below this length gain little: at 512 places and windows of 64 to each side tiles take 0.6
of the time of a dense mask, at 256 as long (forward and backward, 4 heads of 64, one core)."""

MOST = 0.5
"""Above this share of all pairs tiles gain little: 0.84 of the time at a share of 0.56."""


@dataclass(frozen=True, eq=False)
class Group:
    """Tiles of queries that look at equally many tiles of keys.

    ``queries`` (n,) and ``keys`` (n, m) int64 number the tiles of all rows, one row after the
    other. ``mask`` (n, 1, t, m t) bool is True where a key is seen; a place that sees nothing is
    True throughout there, and marked in ``blind`` (n, 1, t, 1).
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor
    blind: Tensor


@dataclass(frozen=True, eq=False)
class Tiles:
    """A rule laid out for ``rows`` rows; what is laid out for one row serves all of a batch.

    ``back`` is where each tile of queries is found in the groups, one behind the other. ``order``
    (L,) int64 are the places of a row as they are laid out, None where they are as they stand.
    ``heads`` (h,) int64 are those that keep this rule, None where all do.
    """

    size: int
    rows: int
    per_row: int
    groups: tuple[Group, ...]
    back: Tensor
    order: Tensor | None = None
    heads: Tensor | None = None

    @property
    def pairs(self) -> int:
        """How many pairs of a query and a key are computed."""
        return self.size**2 * sum(group.keys.numel() for group in self.groups)


def laid_out(
    rule: "Visibility", coordinates: Coordinates, where_it_pays: bool = False
) -> Tiles | None:
    """A rule in tiles; None where it is asked whether that pays, and it does not."""
    length = coordinates.place.shape[-1]
    if where_it_pays and length < SHORTEST:
        return None
    if coordinates.is_plain:
        device = coordinates.place.device
        return _of_plain_rows(rule, length, where_it_pays, device)  # pyright: ignore[reportArgumentType]
    return _laid_out(rule, coordinates, where_it_pays)


@lru_cache(maxsize=64)
def _of_plain_rows(
    rule: "Visibility", length: int, where_it_pays: bool, device: torch.device
) -> Tiles | None:
    # What is kept serves training as well, whoever asks first.
    with torch.inference_mode(False):
        plain = Coordinates(torch.arange(length, device=device)[None])
        return _laid_out(rule, plain, where_it_pays)


def _laid_out(rule: "Visibility", coordinates: Coordinates, where_it_pays: bool) -> Tiles | None:
    known = coordinates.measured()
    order = _order(known, rule.stride)
    places = _cut(known if order is None else known.each(lambda own: own[..., order]))
    rows, per_row, size = places.place.shape
    touched = rule.touches(
        places.each(lambda own: own[:, :, None]), places.each(lambda own: own[:, None, :])
    )
    real = None if places.document is None else places.document >= 0
    if real is not None:
        touched = touched & real.any(-1)[:, None, :]
    touched = touched.expand(rows, -1, -1).flatten(0, 1)
    counts = touched.sum(-1).cpu().numpy()
    widths = _widths(counts)
    if where_it_pays and _given(counts, widths).sum() > MOST * rows * per_row**2:
        return None
    first = torch.argsort(touched, dim=-1, descending=True, stable=True)
    flat = places.each(lambda own: own.flatten(0, 1))
    groups: list[Group] = []
    for narrower, width in zip((-1, *widths), widths, strict=False):
        chosen = np.flatnonzero((counts > narrower) & (counts <= width))
        queries = torch.from_numpy(chosen).to(touched.device)
        own = first[queries, :width]
        keys = own + (queries // per_row * per_row)[:, None]
        asking = flat.each(lambda own, q=queries: own[q][..., None])
        asked = flat.each(lambda own, k=keys: own[k].flatten(1)[:, None])
        seen = rule.visible(asking, asked).expand(len(queries), size, -1)
        seen = seen & touched[queries].gather(1, own).repeat_interleave(size, 1)[:, None]
        if asked.document is not None:
            seen = seen & (asked.document >= 0)
        blind = ~seen.any(-1, keepdim=True)
        groups.append(Group(queries, keys, (seen | blind)[:, None], blind[:, None]))
    back = torch.argsort(torch.cat([group.queries for group in groups]))
    return Tiles(size, rows, per_row, tuple(groups), back, order)


def _order(coordinates: Coordinates, stride: int) -> Tensor | None:
    """Places so far apart side by side: what a window with gaps sees is then a window without."""
    if stride == 1:
        return None
    place = torch.arange(coordinates.place.shape[-1], device=coordinates.place.device)
    return torch.cat([place[first::stride] for first in range(stride)])


def _cut(known: Coordinates) -> Coordinates:
    """Coordinates by tile, (R, N, t): padding fills the last one."""
    length = known.place.shape[-1]
    missing = -length % TILE
    if missing and known.document is None:
        known = replace(known, document=torch.zeros_like(known.place))

    def cut(own: Tensor) -> Tensor:
        filling = False if own.dtype == torch.bool else -1
        return pad(own.expand(known.num_rows, -1), (0, missing), value=filling).unflatten(
            -1, (-1, TILE)
        )

    places = known.each(cut)
    return replace(places, place=places.place + (places.place < 0) * (length + 1))


def _widths(counts: NDArray[np.int64]) -> tuple[int, ...]:
    """The numbers of key tiles of one group, or of two where that saves a tenth."""
    widest = max(1, int(counts.max()))
    narrow = [max(1, int(width)) for width in np.unique(counts)]
    best = min(narrow, key=lambda width: _given(counts, (width, widest)).sum())
    saves = _given(counts, (best, widest)).sum() < 0.9 * widest * len(counts)
    return (best, widest) if saves else (widest,)


def _given(counts: NDArray[np.int64], widths: tuple[int, ...]) -> NDArray[np.int64]:
    """How many tiles of keys each tile of queries is given."""
    return np.asarray(widths)[np.searchsorted(widths, counts)]
