"""What a rule comes to for one batch.

A kernel gets the rule evaluated as little as it can be: nothing at all where everyone sees
everyone, a flag for plain causal rows, tiles where most of a long row is hidden, a dense mask
otherwise.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility.directions import is_two_sided
from bertwright.encoder.visibility.heads import by_head, laid_out_by_head
from bertwright.encoder.visibility.rules import (
    Bidirectional,
    Both,
    BothWays,
    Causal,
    SameDocument,
    Visibility,
    members,
)
from bertwright.encoder.visibility.tiles import Tiles

Tiling = Literal["never", "auto", "always"]
"""Whether a rule is laid out in tiles: auto is where that pays."""


@dataclass(frozen=True, eq=False)
class View:
    """A rule evaluated for one batch.

    ``shape`` says how: ``all`` (nothing is hidden), ``causal`` (plain causal rows), ``documents``
    (contiguous documents, bidirectional), ``tiles`` or ``mask``. ``mask`` (B, 1, Lq, Lk) bool, or
    (B, H, Lq, Lk) where heads differ, is True where a key is seen; a row that sees nothing is True
    throughout there and marked in ``blind`` (B, 1 or H, Lq, 1), so that no kernel meets an empty
    softmax. ``bounds`` (int32) says where each run of one document starts in the flattened rows,
    for kernels that lay documents out by length. ``order`` says what a real place sees of the real
    places, where that is all of them or all up to itself; ``real`` (B, L) bool is which those are,
    None where all are. ``tiles`` are those of all heads, or of heads that differ one after the
    other.
    """

    shape: Literal["all", "causal", "documents", "tiles", "mask"]
    mask: Tensor | None = None
    blind: Tensor | None = None
    bounds: Tensor | None = None
    order: Literal["all", "causal"] | None = None
    real: Tensor | None = None
    tiles: tuple[Tiles, ...] = ()
    wide: "Wide | None" = None


@dataclass(frozen=True, eq=False)
class Wide:
    """The places that see all and are seen by all, at most G in a row.

    ``places`` (B or 1, G) are theirs, what is left over names place 0; ``slot`` (B or 1, L) is
    which of them a place is, where it ``is_wide`` (B or 1, L, bool). ``view`` is what they see.
    """

    places: Tensor
    slot: Tensor
    is_wide: Tensor
    view: View


def view(
    rule: Visibility,
    coordinates: Coordinates,
    keys: Coordinates | None = None,
    tiling: Tiling = "never",
    tell_wide: bool = False,
    heads: int = 1,
) -> View:
    """Evaluate a rule for a batch, as little as it allows; ``keys`` where they are not the same
    places as the queries, ``tell_wide`` where wide places are to be told apart, ``heads`` how many
    there are, which may differ."""
    found = _view(rule, coordinates, keys, tiling, heads)
    wide = rule.wide(coordinates.measured()) if tell_wide and keys is None else None
    return found if wide is None else replace(found, wide=_wide(rule, coordinates, wide, heads))


def seen(rule: Visibility, coordinates: Coordinates, heads: int = 1) -> Tensor:
    """Which real places each place sees, (B, 1, L, L) bool, or (B, H, L, L) where heads differ."""
    return _seen(rule, coordinates.queries(), coordinates.keys(), heads)


def _view(
    rule: Visibility,
    coordinates: Coordinates,
    keys: Coordinates | None,
    tiling: Tiling,
    heads: int,
) -> View:
    document = coordinates.document if keys is None else keys.document
    several = members(rule, Both)
    if document is None:
        several = tuple(r for r in several if not isinstance(r, SameDocument))
    order = _order(several)
    real = None if document is None else document >= 0
    if tiling == "always" and keys is None:
        return View(
            "tiles", order=order, real=real, tiles=laid_out_by_head(rule, coordinates, heads)
        )
    if document is None and (order == "all" or (order == "causal" and keys is None)):
        return View(order, order=order)
    isolating = is_two_sided(rule) and SameDocument() in several
    shape = "documents" if isolating else "mask"
    if tiling == "auto" and keys is None:
        tiles = laid_out_by_head(rule, coordinates, heads, where_it_pays=True)
        if tiles:
            return View("tiles", order=order, real=real, tiles=tiles)
    mask, blind = _seeing(_seen(rule, coordinates.queries(), (keys or coordinates).keys(), heads))
    bounds = None
    if shape == "documents" and document is not None and document.is_cuda:
        bounds = document_bounds(document)
    return View(shape, mask, blind, bounds, order, real)


def _seen(rule: Visibility, query: Coordinates, key: Coordinates, heads: int) -> Tensor:
    """Which real keys are seen, (B, 1, Lq, Lk) bool, or (B, H, Lq, Lk) where heads differ."""
    kinds = by_head(rule, heads)
    each = torch.broadcast_tensors(*(own.visible(query, key) for own, _ in kinds))
    seen = torch.stack(each, dim=1)
    if len(kinds) > 1:
        order = torch.tensor([head for _, of in kinds for head in of]).argsort()
        kind = torch.tensor([n for n, (_, of) in enumerate(kinds) for _ in of])
        seen = seen.index_select(1, kind[order].to(seen.device))
    return seen if key.document is None else seen & (key.document >= 0)[:, None]


def _seeing(seen: Tensor) -> tuple[Tensor, Tensor | None]:
    """What is seen (B, 1 or H, Lq, Lk) as mask and blind rows."""
    blind = ~seen.any(-1, keepdim=True)
    # Only where nothing is trained: a compiled step wants the same kind of view every time.
    if not torch.is_grad_enabled() and not blind.is_cuda and not bool(blind.any()):
        return seen, None
    return seen | blind, blind


def _order(several: "tuple[Visibility, ...]") -> Literal["all", "causal"] | None:
    """What rules that hold together come to, where it is one of the two plainest."""
    if not all(isinstance(rule, Bidirectional | BothWays | Causal) for rule in several):
        return None
    return "causal" if any(isinstance(rule, Causal) for rule in several) else "all"


def _wide(rule: Visibility, coordinates: Coordinates, is_wide: Tensor, heads: int) -> Wide | None:
    """The wide places of a batch; None where no row has any."""
    if torch.compiler.is_exporting():
        # A graph is not told how many there are: every place is asked as if it were one.
        places = torch.arange(is_wide.shape[-1], device=is_wide.device)[None]
        slot = places
    else:
        number = int(is_wide.sum(-1).max())
        if not number:
            return None
        first = torch.argsort(is_wide, dim=-1, descending=True, stable=True)[:, :number]
        places = first.where(is_wide.gather(-1, first), 0)
        slot = (is_wide.cumsum(-1) - 1).clamp(min=0)
    measured = coordinates.measured()
    where = places.expand(measured.num_rows, -1)
    queries = measured.each(lambda own: own.expand(where.shape[0], -1).gather(-1, where)[..., None])
    seen = _seen(rule, queries, measured.keys(), heads)
    return Wide(places, slot, is_wide, View("mask", *_seeing(seen)))


def document_bounds(document: Tensor) -> Tensor:
    """Where each run of one document starts in the flattened rows (B, L), then the end: int32.

    The end is repeated up to a power of two, so that a compiled step meets few lengths.
    """
    starts = torch.ones_like(document, dtype=torch.bool)
    starts[:, 1:] = document[:, 1:] != document[:, :-1]
    first = starts.flatten().nonzero().flatten().to(torch.int32)
    room = 1 << len(first).bit_length()
    return torch.nn.functional.pad(first, (0, room + 1 - len(first)), value=document.numel())
