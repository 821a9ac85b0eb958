"""Attention over the tiles that a rule touches: the rest of a long row is never computed.

The plain definition is attention under the dense mask of the same rule; weights are dropped at the
same places as there.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.encoder.visibility import Group, Tiles

if TYPE_CHECKING:
    from bertwright.encoder.kernels.attention import Call

# Legend: n tiles of queries, t places in a tile, m tiles of keys for each of them; R lanes, which
# are the heads, or all heads of all rows where one layout serves them.


def tiled(call: "Call") -> Tensor:
    """The context (B, H, L, d) of a call whose view is laid out in tiles."""
    tiles = call.view.tiles
    assert tiles is not None
    query, key, value = (_cut(x, tiles) for x in (call.query, call.key, call.value))
    contexts: list[Tensor] = []
    for group in tiles.groups:
        parts = (
            _gathered(query, group.queries[:, None]),
            _gathered(key, group.keys),
            _gathered(value, group.keys),
        )
        context = (_written_out if call.drops else _fused)(*parts, group, call)
        contexts.append(context.masked_fill(group.blind, 0.0).transpose(1, 2))
    return _joined(torch.cat(contexts).index_select(0, tiles.back), call.query, tiles)


def _fused(query: Tensor, key: Tensor, value: Tensor, group: Group, call: "Call") -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=group.mask, scale=call.factor
    )


def _written_out(query: Tensor, key: Tensor, value: Tensor, group: Group, call: "Call") -> Tensor:
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).mul_(call.factor)
    unseen = torch.zeros_like(group.mask, dtype=scores.dtype)
    weights = torch.softmax(scores.add_(unseen.masked_fill_(~group.mask, -torch.inf)), dim=-1)
    assert call.noise is not None
    assert call.view.tiles is not None
    place = _number_of_each_weight(group, call.view.tiles, call.query, call.noise)
    weights = dropout(weights, call.rate, call.noise, call.dropout_site, place)
    return torch.matmul(weights.to(query.dtype), value)


def _cut(x: Tensor, tiles: Tiles) -> Tensor:
    """x (B, H, L, d) as tiles (N, t, B or 1, H, d), the tiles of all rows one behind the other."""
    length = x.shape[2]
    x = F.pad(x, (0, 0, 0, tiles.per_row * tiles.size - length))
    if tiles.rows == 1:
        return x.permute(2, 0, 1, 3).unflatten(0, (-1, tiles.size))
    return x.transpose(1, 2).unflatten(1, (-1, tiles.size)).flatten(0, 1).unsqueeze(2)


def _gathered(x: Tensor, index: Tensor) -> Tensor:
    """The tiles (n, m) of x (N, t, B, H, d), as (n, R, m t, d)."""
    num, width = len(index), x.shape[-1]
    lanes = x.shape[2] * x.shape[3]
    found = x.index_select(0, index.flatten())
    return found.reshape(num, -1, lanes, width).transpose(1, 2)


def _joined(context: Tensor, like: Tensor, tiles: Tiles) -> Tensor:
    """Tiles (N, t, R, d) as (B, H, L, d)."""
    batch, heads, length, width = like.shape
    if tiles.rows == 1:
        rows = context.reshape(-1, batch, heads, width)[:length]
        return rows.permute(1, 2, 0, 3)
    return context.reshape(batch, -1, heads, width)[:, :length].transpose(1, 2)


def _number_of_each_weight(group: Group, tiles: Tiles, query: Tensor, noise: Noise) -> Tensor:
    """Which weight of the dense (B, H, L, L) each one is in the global batch: (n, R, t, m t)."""
    batch, heads, length, _ = query.shape
    device = query.device
    within = torch.arange(tiles.size, device=device)
    asking = (group.queries % tiles.per_row)[:, None] * tiles.size + within
    asked = (group.keys % tiles.per_row)[:, :, None] * tiles.size + within
    row = torch.zeros_like(group.queries) if tiles.rows == 1 else group.queries // tiles.per_row
    lane = torch.arange(heads if tiles.rows > 1 else batch * heads, device=device)
    first = (row + noise.first_row)[:, None] * heads + lane
    number = first[:, :, None] * length + asking[:, None]
    # Of numbers beyond 32 bits the lower 32 count, as in the dense kernel.
    return (number * length).to(torch.int32)[..., None] + asked.flatten(1).to(torch.int32)[
        :, None, None
    ]
