"""Attention over the tiles of a mask, which skips all other scores of a long sequence.

The result equals dense attention under the same attention rule, with dropout of the same weights.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.modules.attention.kernels.inputs import AttentionInputs, mask_to_bias
from bertwright.modules.attention.mask import TileGroup, Tiles
from bertwright.modules.dropout_rng import DropoutRng, dropout
from bertwright.modules.dtypes import at_least_float32

# Shapes: n query tiles of t tokens, m key tiles for each; h of the H heads share a mask; R lanes,
# which are these heads in one sequence, or in all sequences if they share tiles.


def tiled_attention(inputs: AttentionInputs) -> Tensor:
    """Return the context (B, H, L, d) of a call with a mask in tiles."""
    head_groups = [
        tiles.head_indices for tiles in inputs.mask.tiles if tiles.head_indices is not None
    ]
    contexts = [_attend_tiles(inputs, tiles) for tiles in inputs.mask.tiles]
    if not head_groups:
        return contexts[0]
    return torch.cat(contexts, dim=1).index_select(1, torch.cat(head_groups).argsort())


def _attend_tiles(inputs: AttentionInputs, tiles: Tiles) -> Tensor:
    """Return the context (B, h, L, d) of the heads with these tiles."""
    query, key, value = (_to_tiles(x, tiles) for x in (inputs.query, inputs.key, inputs.value))
    contexts: list[Tensor] = []
    for group in tiles.groups:
        group_inputs = (
            _gather_tiles(query, group.query_tiles[:, None]),
            _gather_tiles(key, group.key_tiles),
            _gather_tiles(value, group.key_tiles),
        )
        if inputs.has_dropout:
            context = _explicit_tiles(*group_inputs, group, tiles, inputs)
        else:
            context = F.scaled_dot_product_attention(
                *group_inputs, attn_mask=group.allowed, scale=inputs.score_scale
            )
        contexts.append(context.masked_fill(group.fully_masked, 0.0).transpose(1, 2))
    return _from_tiles(
        torch.cat(contexts).index_select(0, tiles.inverse_order), inputs.query, tiles
    )


def _explicit_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    group: TileGroup,
    tiles: Tiles,
    inputs: AttentionInputs,
) -> Tensor:
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = at_least_float32(scores).mul_(inputs.score_scale)
    weights = torch.softmax(scores.add_(mask_to_bias(group.allowed, scores.dtype)), dim=-1)
    assert inputs.dropout_rng is not None
    indices = _weight_indices(group, tiles, inputs.query, inputs.dropout_rng)
    weights = dropout(
        weights, inputs.dropout_rate, inputs.dropout_rng, inputs.dropout_stream, indices
    )
    return torch.matmul(weights.to(query.dtype), value)


def _to_tiles(x: Tensor, tiles: Tiles) -> Tensor:
    """Split x (B, H, L, d) into tiles (N, t, B or 1, h, d), sequence by sequence."""
    length = x.shape[2]
    if tiles.head_indices is not None:
        x = x.index_select(1, tiles.head_indices)
    if tiles.permutation is not None:
        x = x.index_select(2, tiles.permutation)
    x = F.pad(x, (0, 0, 0, tiles.tiles_per_sequence * tiles.tile_size - length))
    if tiles.num_sequences == 1:
        return x.permute(2, 0, 1, 3).unflatten(0, (-1, tiles.tile_size))
    return x.transpose(1, 2).unflatten(1, (-1, tiles.tile_size)).flatten(0, 1).unsqueeze(2)


def _gather_tiles(x: Tensor, index: Tensor) -> Tensor:
    """Return the tiles of x (N, t, B, h, d) at ``index`` (n, m), as (n, R, m t, d)."""
    num_tiles, width = len(index), x.shape[-1]
    num_lanes = x.shape[2] * x.shape[3]
    tiles = x.index_select(0, index.flatten())
    return tiles.reshape(num_tiles, -1, num_lanes, width).transpose(1, 2)


def _from_tiles(context: Tensor, like: Tensor, tiles: Tiles) -> Tensor:
    """Return tiles (N, t, R, d) as (B, h, L, d)."""
    batch, heads, length, width = like.shape
    heads = heads if tiles.head_indices is None else len(tiles.head_indices)
    if tiles.num_sequences == 1:
        merged = context.reshape(-1, batch, heads, width)[:length].permute(1, 2, 0, 3)
    else:
        merged = context.reshape(batch, -1, heads, width)[:, :length].transpose(1, 2)
    return (
        merged if tiles.permutation is None else merged.index_select(2, tiles.permutation.argsort())
    )


def _weight_indices(
    group: TileGroup, tiles: Tiles, query: Tensor, dropout_rng: DropoutRng
) -> Tensor:
    """Return the index of each weight in the (B, H, L, L) of the global batch, (n, R, t, m t)."""
    batch, heads, length, _ = query.shape
    device = query.device
    positions = (
        torch.arange(length, device=device) if tiles.permutation is None else tiles.permutation
    )
    positions = F.pad(positions, (0, tiles.tiles_per_sequence * tiles.tile_size - length)).view(
        -1, tiles.tile_size
    )
    query_positions, key_positions = (
        positions[tile % tiles.tiles_per_sequence] for tile in (group.query_tiles, group.key_tiles)
    )
    sequence = (
        torch.zeros_like(group.query_tiles)
        if tiles.num_sequences == 1
        else group.query_tiles // tiles.tiles_per_sequence
    )
    lane_index = (
        torch.arange(heads, device=device) if tiles.head_indices is None else tiles.head_indices
    )
    if tiles.num_sequences == 1:
        lane_index = (torch.arange(batch, device=device)[:, None] * heads + lane_index).flatten()
    first = (sequence + dropout_rng.first_sequence)[:, None] * heads + lane_index
    row_indices = first[:, :, None] * length + query_positions[:, None]
    # Only the lower 32 bits of an index count, as in the dense kernel.
    return (row_indices * length).to(torch.int32)[..., None] + key_positions.flatten(1).to(
        torch.int32
    )[:, None, None]
