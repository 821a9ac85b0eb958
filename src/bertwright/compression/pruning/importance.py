"""Structured pruning: remove the heads and units that are least important for a task.

Michel et al. (2019); Hou et al. (2020).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.compression.pruning.structured import Subnetwork, prune_weights, unique_weights
from bertwright.compression.task_loss import ExampleBatch, example_batches
from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.rng import sample
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.depth import DepthConfig
from bertwright.models.saving import build_empty, load_tensors
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.tasks.adapters import FullFineTuningConfig
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task_model import TaskModel

BATCH_SIZE = 32
"""Number of items per forward and backward pass."""

Importances = list[NDArray[np.float64]]
"""The importance of heads, or of units, by block."""

GATED_TAPS = ("attention.context", "feed_forward.activation")


class StructuredPruning(Settings):
    """Structured pruning: the fractions of ``heads`` and feed-forward ``units`` to remove.

    Importance is measured with gradients of the loss on at most ``examples`` examples.
    """

    heads: float = Field(default=0.0, ge=0, lt=1)
    units: float = Field(default=0.0, ge=0, lt=1)
    examples: int = Field(default=512, ge=1, le=1 << 24)

    def prune(self, model: FineTunedModel, examples: Examples) -> FineTunedModel:
        """Return a pruned model; raise UserError for an encoder that cannot be pruned."""
        heads, units = importances(model, sample(examples, self.examples))
        depth = model.task_model.recipe.encoder.depth
        kept = Subnetwork(
            _remaining_by_block(heads, self.heads, depth, "s") if self.heads else None,
            _remaining_by_block(units, self.units, depth, "f") if self.units else None,
        )
        return prune_fine_tuned(model, kept)


def _remaining_by_block(
    block_importances: Importances, pruned_fraction: float, depth: DepthConfig, sublayer_letter: str
) -> list[list[int]]:
    """Return which heads or units to keep in every block.

    Blocks that share parameters are pruned together, by the sum of their importances. A block
    without the sublayer, and so without importances, counts as one part that is kept.
    """
    owners = [
        depth.owner_block(block, sublayer_letter) if values.size else block
        for block, values in enumerate(block_importances)
    ]
    sums: dict[int, NDArray[np.float64]] = {}
    for owner, values in zip(owners, block_importances, strict=True):
        if values.size:
            sums[owner] = sums.get(owner, np.zeros_like(values)) + values
    kept = dict(zip(sums, select_most_important(list(sums.values()), pruned_fraction), strict=True))
    return [kept.get(owner, [0]) for owner in owners]


def select_most_important(
    layer_importances: Sequence[NDArray[np.float64]], pruned_fraction: float
) -> list[list[int]]:
    """Return which parts to keep in every layer; the least important over all layers are removed.

    Every layer keeps at least one part.
    """
    kept = [list(range(len(values))) for values in layer_importances]
    parts = [
        (layer, part)
        for layer, values in enumerate(layer_importances)
        for part in range(len(values))
    ]
    num_left = round(pruned_fraction * len(parts))
    for index in np.argsort(np.concatenate([*layer_importances]), kind="stable"):
        layer, part = parts[index]
        if num_left and len(kept[layer]) > 1:
            kept[layer].remove(part)
            num_left -= 1
    return kept


def first_subnetwork(config: EncoderConfig, pruned_fraction: float) -> Subnetwork:
    """Return the first heads and units of every block, as many as pruning would keep.

    Raises UserError for blocks without attention.
    """
    heads: Importances = []
    units: Importances = []
    if not isinstance(config.mixer, AttentionConfig):
        raise UserError("only the heads of attention can be pruned: choose another mixer")
    for num_heads, num_units in _block_sizes(config):
        heads.append(_decreasing_importances(num_heads))
        units.append(_decreasing_importances(num_units))
    depth = config.depth
    return Subnetwork(
        _remaining_by_block(heads, pruned_fraction, depth, "s"),
        _remaining_by_block(units, pruned_fraction, depth, "f"),
    )


def _decreasing_importances(num_parts: int) -> NDArray[np.float64]:
    """Return importances with which all layers are pruned equally, the last parts first."""
    return 1 - (np.arange(num_parts) + 0.5) / max(num_parts, 1)


def _block_sizes(config: EncoderConfig) -> Iterator[tuple[int, int]]:
    """Yield the number of heads and of units of every block; 0 without the sublayer."""
    orders = config.depth.sublayer_orders()
    for block, (order, (_, width)) in enumerate(zip(orders, config.block_widths, strict=True)):
        num_heads = config.mixer_at(block).head_shape(width).num_heads
        num_units = config.feed_forward_at(block).inner_width(width)
        yield num_heads if "s" in order else 0, num_units if "f" in order else 0


def prune_fine_tuned(model: FineTunedModel, subnetwork: Subnetwork) -> FineTunedModel:
    """Return a pruned fine-tuned model; outputs equal those with the removed parts gated to 0.

    Raises UserError for an encoder that cannot be pruned.
    """
    net = model.task_model
    recipe = net.recipe.model_copy(update={"encoder": subnetwork.prune_config(net.recipe.encoder)})
    pruned = build_empty(TaskModel, recipe, net.vocab_size, net.head_spec, FullFineTuningConfig())
    load_tensors(
        pruned, prune_weights(unique_weights(net), net.recipe.encoder, subnetwork), net.recipe.name
    )
    tokenizer, length = model.tokenizer, model.example_encoder.max_length
    return FineTunedModel(pruned, tokenizer, model.task, length, model.precision, model.temperature)


def importances(model: FineTunedModel, examples: Examples) -> tuple[Importances, Importances]:
    """Return the importance of every head and unit, normalised within each block.

    A block without attention or feed-forward has no heads or no units.

    It is the mean over items of the absolute gradient of the loss with respect to a gate (Molchanov
    et al. 2017).
    """
    sums: dict[str, Tensor] = {}
    for batch in example_batches(model, examples, BATCH_SIZE):
        for name, gradients in _gate_gradients(batch).items():
            sums[name] = sums.get(name, torch.zeros(())) + gradients.abs().sum(0).flatten()
    blocks = range(len(model.task_model.encoder.blocks))
    none = torch.zeros(0)
    heads, units = (
        [_normalise(sums.get(f"blocks.{n}.{tap}", none)) for n in blocks] for tap in GATED_TAPS
    )
    return heads, units


def _normalise(gradients: Tensor) -> NDArray[np.float64]:
    values = gradients.double().cpu().numpy()
    return values / max(float(np.linalg.norm(values)), 1e-30)


def _gate_gradients(batch: ExampleBatch) -> dict[str, Tensor]:
    """Return each item's loss gradient by gate name: (B, H, 1, 1) and (B, 1, F)."""
    sizes = batch.num_sequences()
    gates = _unit_gates(batch.model, sum(sizes))
    with torch.enable_grad(), batch.model.task_model.encoder.gate(gates):
        loss, _ = batch.total()
        gradients = torch.autograd.grad(loss, list(gates.values()))
    return {
        name: torch.stack([item.sum(0) for item in gradient.split(sizes)])
        for name, gradient in zip(gates, gradients, strict=True)
    }


def _unit_gates(model: FineTunedModel, num_sequences: int) -> dict[str, Tensor]:
    gates = dict[str, Tensor]()
    for block, (heads, units) in enumerate(_block_sizes(model.task_model.recipe.encoder)):
        shapes = (num_sequences, heads, 1, 1), (num_sequences, 1, units)
        for tap, shape, size in zip(GATED_TAPS, shapes, (heads, units), strict=True):
            if size:
                gate = torch.ones(shape, device=model.device).requires_grad_()
                gates[f"blocks.{block}.{tap}"] = gate
    return gates
