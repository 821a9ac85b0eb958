"""Attention over the tiles that a rule touches: the rest of a long row is never computed.

The plain definition is attention under the dense mask of the same rule; weights are dropped at the
same places as there.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.encoder.visibility import Group, Tiles

# Legend: n tiles of queries, t places in a tile, m tiles of keys for each of them; h of the H heads
# keep one rule; R lanes, which are these heads, or those of all rows where one layout serves them.


def tiled(call: Call) -> Tensor:
    """The context (B, H, L, d) of a call whose view is laid out in tiles."""
    of_heads = [tiles.heads for tiles in call.view.tiles if tiles.heads is not None]
    contexts = [_computed(call, tiles) for tiles in call.view.tiles]
    if not of_heads:
        return contexts[0]
    return torch.cat(contexts, dim=1).index_select(1, torch.cat(of_heads).argsort())


def _computed(call: Call, tiles: Tiles) -> Tensor:
    """The context (B, h, L, d) of the heads that see by the same tiles."""
    query, key, value = (_cut(x, tiles) for x in (call.query, call.key, call.value))
    contexts: list[Tensor] = []
    for group in tiles.groups:
        parts = (
            _gathered(query, group.queries[:, None]),
            _gathered(key, group.keys),
            _gathered(value, group.keys),
        )
        found = (
            _written_out(*parts, group, tiles, call) if call.drops else _fused(*parts, group, call)
        )
        contexts.append(found.masked_fill(group.blind, 0.0).transpose(1, 2))
    return _joined(torch.cat(contexts).index_select(0, tiles.back), call.query, tiles)


def _fused(query: Tensor, key: Tensor, value: Tensor, group: Group, call: Call) -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=group.mask, scale=call.factor
    )


def _written_out(
    query: Tensor, key: Tensor, value: Tensor, group: Group, tiles: Tiles, call: Call
) -> Tensor:
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).mul_(call.factor)
    unseen = torch.zeros_like(group.mask, dtype=scores.dtype)
    weights = torch.softmax(scores.add_(unseen.masked_fill_(~group.mask, -torch.inf)), dim=-1)
    assert call.noise is not None
    place = _number_of_each_weight(group, tiles, call.query, call.noise)
    weights = dropout(weights, call.rate, call.noise, call.dropout_site, place)
    return torch.matmul(weights.to(query.dtype), value)


def _cut(x: Tensor, tiles: Tiles) -> Tensor:
    """x (B, H, L, d) as tiles (N, t, B or 1, h, d), the tiles of all rows one behind the other."""
    length = x.shape[2]
    if tiles.heads is not None:
        x = x.index_select(1, tiles.heads)
    if tiles.order is not None:
        x = x.index_select(2, tiles.order)
    x = F.pad(x, (0, 0, 0, tiles.per_row * tiles.size - length))
    if tiles.rows == 1:
        return x.permute(2, 0, 1, 3).unflatten(0, (-1, tiles.size))
    return x.transpose(1, 2).unflatten(1, (-1, tiles.size)).flatten(0, 1).unsqueeze(2)


def _gathered(x: Tensor, index: Tensor) -> Tensor:
    """The tiles (n, m) of x (N, t, B, h, d), as (n, R, m t, d)."""
    num, width = len(index), x.shape[-1]
    lanes = x.shape[2] * x.shape[3]
    found = x.index_select(0, index.flatten())
    return found.reshape(num, -1, lanes, width).transpose(1, 2)


def _joined(context: Tensor, like: Tensor, tiles: Tiles) -> Tensor:
    """Tiles (N, t, R, d) as (B, h, L, d)."""
    batch, heads, length, width = like.shape
    heads = heads if tiles.heads is None else len(tiles.heads)
    if tiles.rows == 1:
        rows = context.reshape(-1, batch, heads, width)[:length].permute(1, 2, 0, 3)
    else:
        rows = context.reshape(batch, -1, heads, width)[:, :length].transpose(1, 2)
    return rows if tiles.order is None else rows.index_select(2, tiles.order.argsort())


def _number_of_each_weight(group: Group, tiles: Tiles, query: Tensor, noise: Noise) -> Tensor:
    """Which weight of the dense (B, H, L, L) each one is in the global batch: (n, R, t, m t)."""
    batch, heads, length, _ = query.shape
    device = query.device
    place = torch.arange(length, device=device) if tiles.order is None else tiles.order
    place = F.pad(place, (0, tiles.per_row * tiles.size - length)).view(-1, tiles.size)
    asking, asked = (place[tile % tiles.per_row] for tile in (group.queries, group.keys))
    row = torch.zeros_like(group.queries) if tiles.rows == 1 else group.queries // tiles.per_row
    lane = torch.arange(heads, device=device) if tiles.heads is None else tiles.heads
    if tiles.rows == 1:
        lane = (torch.arange(batch, device=device)[:, None] * heads + lane).flatten()
    first = (row + noise.first_row)[:, None] * heads + lane
    number = first[:, :, None] * length + asking[:, None]
    # Of numbers beyond 32 bits the lower 32 count, as in the dense kernel.
    return (number * length).to(torch.int32)[..., None] + asked.flatten(1).to(torch.int32)[
        :, None, None
    ]
