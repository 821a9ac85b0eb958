"""The rules that the heads of a block keep, where heads differ."""

from dataclasses import replace
from functools import lru_cache

import torch

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility.rules import Visibility
from bertwright.encoder.visibility.tiles import Tiles, laid_out

Kinds = tuple[tuple[Visibility, tuple[int, ...]], ...]


def by_head(rule: Visibility, heads: int) -> Kinds:
    """Every rule that some of so many heads keep, and which heads these are."""
    return _by_head(rule, heads)  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=256)
def _by_head(rule: Visibility, heads: int) -> Kinds:
    found: dict[Visibility, list[int]] = {}
    for head in range(heads):
        found.setdefault(rule.at_head(head), []).append(head)
    return tuple((own, tuple(of)) for own, of in found.items())


def laid_out_by_head(
    rule: Visibility, coordinates: Coordinates, heads: int, where_it_pays: bool = False
) -> tuple[Tiles, ...]:
    """A rule in tiles, once for all heads or for those that differ each; none where it is asked
    whether that pays, and for some head it does not."""
    kinds, device = by_head(rule, heads), coordinates.place.device
    laid = [laid_out(own, coordinates, where_it_pays) for own, _ in kinds]
    found = [tiles for tiles in laid if tiles is not None]
    if len(found) < len(kinds):
        return ()
    if len(found) == 1:
        return tuple(found)
    return tuple(
        replace(tiles, heads=torch.tensor(of, device=device))
        for tiles, (_, of) in zip(found, kinds, strict=True)
    )
