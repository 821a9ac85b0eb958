"""Attention masks in tiles: only tiles with allowed pairs are computed.

Sequences are split into tiles of ``TILE_SIZE`` tokens. The rule determines which key tiles a query
tile may attend to; only these are computed, under the exact mask. If the number of keys per query
is bounded, the cost is linear in the sequence length. The few query tiles that need many more keys,
such as those with global tokens, form a separate group. With dilation, positions are reordered so
that those a ``stride`` apart are adjacent, which costs as much as no dilation.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from bertwright.modules.attention.mask.visibility import Visibility
from bertwright.modules.token_tensors import TokenInfo

TILE_SIZE = 64
"""Number of tokens in a tile."""

MIN_TILED_LENGTH = 512
"""Minimum sequence length for tiles.

With windows of 64, tiles take 0.6 of the time of a dense mask at 512 tokens, and as long at 256.
"""

MAX_TILED_FRACTION = 0.5
"""Maximum fraction of pairs in tiles. At 0.56, tiles take 0.84 of a dense mask's time."""


@dataclass(frozen=True, eq=False)
class TileGroup:
    """A group of query tiles that attend to the same number of key tiles.

    ``query_tiles`` (n,) and ``key_tiles`` (n, m) int64 are indices into the tiles of all sequences.
    ``allowed`` (n, 1, t, m t) bool is True where a query may attend to a key; the row of a fully
    masked query is all True, and ``fully_masked`` (n, 1, t, 1) marks it.
    """

    query_tiles: Tensor
    key_tiles: Tensor
    allowed: Tensor
    fully_masked: Tensor


@dataclass(frozen=True, eq=False)
class Tiles:
    """An attention mask in tiles, for ``num_sequences`` sequences, or 1 for a whole batch.

    ``inverse_order`` is the index of each query tile in the concatenated groups. ``permutation``
    (L,) int64 is the order of positions in tiles; None if unchanged. ``head_indices`` (h,) int64
    are the heads with this mask; None for all.
    """

    tile_size: int
    num_sequences: int
    tiles_per_sequence: int
    groups: tuple[TileGroup, ...]
    inverse_order: Tensor
    permutation: Tensor | None = None
    head_indices: Tensor | None = None

    @property
    def num_pairs(self) -> int:
        """Return the number of query-key pairs that are computed."""
        return self.tile_size**2 * sum(group.key_tiles.numel() for group in self.groups)


def compute_tiles(
    visibility: Visibility, token_info: TokenInfo, only_if_faster: bool = False
) -> Tiles | None:
    """Return a mask in tiles; None if ``only_if_faster`` and a dense mask is as fast."""
    length = token_info.index.shape[-1]
    if only_if_faster and length < MIN_TILED_LENGTH:
        return None
    if token_info.has_indices_only:
        cache, key = _tiles_by_rule(length, token_info.index.device), (visibility, only_if_faster)
        if key not in cache:
            # Cached tensors are also used in training, even if first computed in inference.
            with torch.inference_mode(False):
                plain_info = TokenInfo(torch.arange(length, device=token_info.index.device)[None])
                cache[key] = _compute_tiles(visibility, plain_info, only_if_faster)
        return cache[key]
    return _compute_tiles(visibility, token_info, only_if_faster)


@lru_cache(maxsize=4)
def _tiles_by_rule(
    length: int, device: torch.device
) -> dict[tuple[Visibility, bool], Tiles | None]:
    """Return the cache of tiles for full sequences; only the last few lengths are cached."""
    return {}


def _compute_tiles(
    visibility: Visibility, token_info: TokenInfo, only_if_faster: bool
) -> Tiles | None:
    info = token_info.with_text_lengths()
    permutation = _strided_permutation(info, visibility.stride)
    if permutation is not None:
        info = info.map(lambda t: t[..., permutation])
    tiled = _tile_token_info(info)
    num_sequences, per_sequence, size = tiled.index.shape
    attends = visibility.may_attend(
        tiled.map(lambda t: t[:, :, None]), tiled.map(lambda t: t[:, None, :])
    )
    is_real = None if tiled.document_ids is None else tiled.document_ids >= 0
    if is_real is not None:
        attends = attends & is_real.any(-1)[:, None, :]
    attends = attends.expand(num_sequences, -1, -1).flatten(0, 1)
    counts = attends.sum(-1).cpu().numpy()
    widths = _group_widths(counts)
    num_key_tiles = _assigned_width(counts, widths).sum()
    if only_if_faster and num_key_tiles > MAX_TILED_FRACTION * num_sequences * per_sequence**2:
        return None
    key_order = torch.argsort(attends, dim=-1, descending=True, stable=True)
    flat_tokens = tiled.map(lambda t: t.flatten(0, 1))
    groups: list[TileGroup] = []
    for narrower, width in zip((-1, *widths), widths, strict=False):
        indices = np.flatnonzero((counts > narrower) & (counts <= width))
        queries = torch.from_numpy(indices).to(attends.device)
        local_keys = key_order[queries, :width]
        keys = local_keys + (queries // per_sequence * per_sequence)[:, None]
        query = flat_tokens.map(lambda t, q=queries: t[q][..., None])
        key = flat_tokens.map(lambda t, k=keys: t[k].flatten(1)[:, None])
        allowed = visibility.visible(query, key).expand(len(queries), size, -1)
        is_attended = attends[queries].gather(1, local_keys)
        allowed = allowed & is_attended.repeat_interleave(size, 1)[:, None]
        if key.document_ids is not None:
            allowed = allowed & (key.document_ids >= 0)
        masked = ~allowed.any(-1, keepdim=True)
        groups.append(TileGroup(queries, keys, (allowed | masked)[:, None], masked[:, None]))
    inverse_order = torch.argsort(torch.cat([group.query_tiles for group in groups]))
    return Tiles(size, num_sequences, per_sequence, tuple(groups), inverse_order, permutation)


def _strided_permutation(token_info: TokenInfo, stride: int) -> Tensor | None:
    """Return an order that makes positions a stride apart adjacent; None for stride 1."""
    if stride == 1:
        return None
    index = torch.arange(token_info.index.shape[-1], device=token_info.index.device)
    return torch.cat([index[first::stride] for first in range(stride)])


def _tile_token_info(token_info: TokenInfo) -> TokenInfo:
    """Return the token attributes by tile, (B, N, t), with padding in the last tile."""
    length = token_info.index.shape[-1]
    missing = -length % TILE_SIZE
    if missing and token_info.document_ids is None:
        token_info = replace(token_info, document_ids=torch.zeros_like(token_info.index))

    def split(values: Tensor) -> Tensor:
        fill = False if values.dtype == torch.bool else -1
        padded = pad(values.expand(token_info.num_sequences, -1), (0, missing), value=fill)
        return padded.unflatten(-1, (-1, TILE_SIZE))

    tiled = token_info.map(split)
    return replace(tiled, index=tiled.index + (tiled.index < 0) * (length + 1))


def _group_widths(counts: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the key tiles per query tile of one group, or of two if that saves a tenth."""
    widest = max(1, int(counts.max()))
    candidates = [max(1, int(width)) for width in np.unique(counts)]
    best = min(candidates, key=lambda width: _assigned_width(counts, (width, widest)).sum())
    saves = _assigned_width(counts, (best, widest)).sum() < 0.9 * widest * len(counts)
    return (best, widest) if saves else (widest,)


def _assigned_width(counts: NDArray[np.int64], widths: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the number of key tiles that are computed for each query tile."""
    return np.asarray(widths)[np.searchsorted(widths, counts)]


HeadGroups = tuple[tuple[Visibility, tuple[int, ...]], ...]


def visibility_by_head(visibility: Visibility, num_heads: int) -> HeadGroups:
    """Return the distinct rules of the heads, each with its heads."""
    return _visibility_by_head(visibility, num_heads)  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=256)
def _visibility_by_head(visibility: Visibility, num_heads: int) -> HeadGroups:
    groups: dict[Visibility, list[int]] = {}
    for head in range(num_heads):
        groups.setdefault(visibility.at_head(head), []).append(head)
    return tuple((rule, tuple(heads)) for rule, heads in groups.items())


def compute_tiles_by_head(
    visibility: Visibility, token_info: TokenInfo, num_heads: int, only_if_faster: bool = False
) -> tuple[Tiles, ...]:
    """Return a mask in tiles for each group of heads with the same rule.

    The result is empty if ``only_if_faster`` and a dense mask is as fast.
    """
    groups, device = visibility_by_head(visibility, num_heads), token_info.index.device
    candidates = [compute_tiles(rule, token_info, only_if_faster) for rule, _ in groups]
    by_group = [tiles for tiles in candidates if tiles is not None]
    if len(by_group) < len(groups):
        return ()
    if len(by_group) == 1:
        return tuple(by_group)
    return tuple(
        replace(tiles, head_indices=torch.tensor(heads, device=device))
        for tiles, (_, heads) in zip(by_group, groups, strict=True)
    )
