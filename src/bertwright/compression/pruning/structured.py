"""Structured pruning: smaller matrices, without some of the heads and units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.models.model import Model
from bertwright.models.saving import model_from_tensors
from bertwright.modules.attention.attention import AttentionConfig

IndicesByBlock = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Subnetwork:
    """The indices of the ``heads`` and feed-forward ``units`` to keep in every block.

    None keeps all of them. Blocks that share parameters must keep the same ones.
    """

    heads: IndicesByBlock | None = None
    units: IndicesByBlock | None = None

    def prune_config(self, config: EncoderConfig) -> EncoderConfig:
        """Return the config of a pruned encoder; raise UserError if it cannot be pruned."""
        sizes = {
            name: tuple(len(kept) for kept in indices)
            for name, indices in (("heads", self.heads), ("units", self.units))
            if indices is not None
        }
        before = {} if config.pruned_sizes is None else config.pruned_sizes.model_dump()
        try:
            return config.copy_with("encoder", pruned_sizes={**before, **sizes})
        except ValueError as error:
            raise UserError(str(error)) from error


def prune_model(model: Model, subnetwork: Subnetwork) -> Model:
    """Return a pruned model; raise UserError if its encoder cannot be pruned."""
    recipe, weights = model.recipe, unique_weights(model)
    pruned_recipe = recipe.model_copy(update={"encoder": subnetwork.prune_config(recipe.encoder)})
    pruned_weights = prune_weights(weights, recipe.encoder, subnetwork)
    return model_from_tensors(pruned_recipe, model.vocab_size, pruned_weights, recipe.name)


def largest_units(model: Model, number: int) -> IndicesByBlock:
    """Return the feed-forward units of every block with the largest weights, in order.

    The size of a unit is the length of its input weights times that of its output weights. Raises
    UserError if a block has fewer units, or none.
    """
    weights, encoder = unique_weights(model), model.recipe.encoder
    kept: list[list[int]] = []
    for block, _ in enumerate(encoder.depth.sublayer_orders()):
        prefix = f"encoder.blocks.{block}.sublayers.feed_forward."
        down = weights.get(f"{prefix}down.weight")
        width = 0 if down is None else down.shape[1]
        if down is None or number > width:
            raise UserError(
                f"layer {block + 1} has {width} feed-forward units: keep at most as many"
            )
        up = weights[f"{prefix}up.weight"].unflatten(0, (-1, width)).square().sum((0, 2))
        sizes = up.sqrt() * down.norm(dim=0)
        kept.append(sizes.argsort(descending=True, stable=True)[:number].sort().values.tolist())
    return kept


def unique_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name; a tensor shared by blocks occurs once."""
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


def prune_weights(
    weights: Mapping[str, Tensor],
    config: EncoderConfig,
    subnetwork: Subnetwork,
    prefix: str = "encoder.",
) -> dict[str, Tensor]:
    """Return the weights of a subnetwork by name; ``prefix`` precedes the encoder's names."""
    pruned = dict(weights)
    for block, _ in enumerate(config.depth.sublayer_orders()):
        sublayers = f"{prefix}blocks.{block}.sublayers."
        if subnetwork.heads is not None:
            heads = subnetwork.heads[block]
            pruned |= _prune_attention(pruned, config, block, heads, f"{sublayers}attention.")
        if subnetwork.units is not None:
            units = subnetwork.units[block]
            pruned |= _prune_feed_forward(pruned, config, block, units, f"{sublayers}feed_forward.")
    return pruned


def _prune_attention(
    weights: Mapping[str, Tensor],
    config: EncoderConfig,
    block: int,
    heads: Sequence[int],
    prefix: str,
) -> dict[str, Tensor]:
    mixer = config.mixer_at(block)
    assert isinstance(mixer, AttentionConfig), "the encoder config checks that only attention is"
    shape = mixer.head_shape(config.block_widths[block][1])
    num_parts = 3 if mixer.gate is None else 4
    width = shape.inner_width
    indices = torch.arange(width).view(shape.num_heads, -1)[list(heads)].flatten()
    return _select_units(weights, prefix, "projection", "output", indices, width, num_parts)


def _prune_feed_forward(
    weights: Mapping[str, Tensor],
    config: EncoderConfig,
    block: int,
    units: Sequence[int],
    prefix: str,
) -> dict[str, Tensor]:
    feed_forward = config.feed_forward_at(block)
    width = feed_forward.inner_width(config.block_widths[block][1])
    num_parts = 2 if feed_forward.is_gated else 1
    return _select_units(weights, prefix, "up", "down", torch.tensor(list(units)), width, num_parts)


def _select_units(
    weights: Mapping[str, Tensor],
    prefix: str,
    input_matrix: str,
    output_matrix: str,
    indices: Tensor,
    inner_width: int,
    num_parts: int,
) -> dict[str, Tensor]:
    """Select rows from each part of the input matrix, and columns from the output matrix."""
    rows = torch.cat([inner_width * part + indices for part in range(num_parts)])
    selected = {
        name: weights[name][rows]
        for name in (f"{prefix}{input_matrix}.weight", f"{prefix}{input_matrix}.bias")
        if name in weights
    }
    name = f"{prefix}{output_matrix}.weight"
    return selected | ({name: weights[name][:, indices]} if name in weights else {})
