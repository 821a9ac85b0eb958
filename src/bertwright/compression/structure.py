"""Heads and units that matter least for a task are taken out of a model that was fine-tuned for it
(Michel et al. 2019; Hou et al. 2020)."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.axes import Settings
from bertwright.compression.quantisation.losses import Asked, asked
from bertwright.compression.surgery import Kept, cut_weights, weights_once
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.depth import Depth
from bertwright.encoder.mixers import AttentionChoice
from bertwright.errors import UserError
from bertwright.model.folder import fill
from bertwright.randomness import sample
from bertwright.tasks.adaptation import Full
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task_model import TaskModel

AT_ONCE = 32
"""Items that are looked at together."""

Importances = list[NDArray[np.float64]]
"""Of the heads, or units, of every block."""

SITES = ("attention.context", "feed_forward.activation")


class Removing(Settings):
    """Which shares of the ``heads`` and of the ``units`` of feed-forwards go, by how much the loss
    of so many ``examples`` changes with each of them."""

    heads: float = Field(default=0.0, ge=0, lt=1)
    units: float = Field(default=0.0, ge=0, lt=1)
    examples: int = Field(default=512, ge=1, le=1 << 24)

    def left_of(self, model: FineTuned, examples: Examples) -> FineTuned:
        """What is left of a model; UserError where nothing can be taken from such an encoder."""
        heads, units = importances(model, sample(examples, self.examples))
        depth = model.net.recipe.encoder.depth
        kept = Kept(
            _kept(heads, self.heads, depth, "s") if self.heads else None,
            _kept(units, self.units, depth, "f") if self.units else None,
        )
        return cut_fine_tuned(model, kept)


def _kept(found: Importances, share: float, depth: Depth, letter: str) -> list[list[int]]:
    """By block, what stays where this share goes. What several blocks share goes from all of them,
    and matters as much as in all of them together."""
    owners = [depth.owner(block, letter) for block in range(len(found))]
    sums: dict[int, NDArray[np.float64]] = {}
    for owner, own in zip(owners, found, strict=True):
        sums[owner] = sums.get(owner, np.zeros_like(own)) + own
    left = dict(zip(sums, kept_parts(list(sums.values()), share), strict=True))
    return [left[owner] for owner in owners]


def kept_parts(found: Sequence[NDArray[np.float64]], share: float) -> list[list[int]]:
    """By layer, the parts that stay where this ``share`` of all goes, those of the least importance
    first; ``found`` has one for each part of every layer. The last part of a layer stays."""
    kept = [list(range(len(own))) for own in found]
    places = [(layer, part) for layer, own in enumerate(found) for part in range(len(own))]
    going = round(share * len(places))
    for at in np.argsort(np.concatenate([*found]), kind="stable"):
        layer, part = places[at]
        if going and len(kept[layer]) > 1:
            kept[layer].remove(part)
            going -= 1
    return kept


def first_kept(choice: EncoderChoice, share: float) -> Kept:
    """Of every block the first heads and units, as many of all as :class:`Removing` leaves where
    this ``share`` of them goes.

    Errors: UserError for blocks without attention.
    """
    heads: Importances = []
    units: Importances = []
    for block, (_, writes) in enumerate(choice.inner_widths):
        mixer = choice.mixer_at(block)
        if not isinstance(mixer, AttentionChoice):
            raise UserError("heads can be taken of attention alone")
        heads.append(_falling(mixer.shape(writes).heads))
        units.append(_falling(choice.feed_forward_at(block).inner(writes)))
    depth = choice.depth
    return Kept(_kept(heads, share, depth, "s"), _kept(units, share, depth, "f"))


def _falling(number: int) -> NDArray[np.float64]:
    """Importances of so many parts by which those of every layer go alike, the last ones first."""
    return 1 - (np.arange(number) + 0.5) / number


def cut_fine_tuned(model: FineTuned, kept: Kept) -> FineTuned:
    """A fine-tuned model of the heads and units that are kept; it answers as the whole does with
    the others gated away.

    Errors: UserError where nothing can be taken from its encoder.
    """
    net = model.net
    left = net.recipe.model_copy(update={"encoder": kept.cut(net.recipe.encoder)})
    small = TaskModel.empty(left, net.vocabulary_size, net.plan, Full())
    fill(small, cut_weights(weights_once(net), net.recipe.encoder, kept), net.recipe.name)
    tokenizer, length = model.tokenizer, model.maker.length
    return FineTuned(small, tokenizer, model.task, length, model.precision, model.temperature)


def importances(model: FineTuned, examples: Examples) -> tuple[Importances, Importances]:
    """The mean over items of the absolute slope of their loss in a gate of each head, and of each
    unit, over the length of those of their block (Molchanov et al. 2017)."""
    sums: dict[str, Tensor] = {}
    for batch in asked(model, examples, AT_ONCE):
        for name, slopes in _slopes(batch).items():
            sums[name] = sums.get(name, torch.zeros(())) + slopes.abs().sum(0).flatten()
    blocks = range(len(model.net.encoder.blocks))
    heads, units = ([_in_block(sums[f"blocks.{n}.{site}"]) for n in blocks] for site in SITES)
    return heads, units


def _in_block(found: Tensor) -> NDArray[np.float64]:
    own = found.double().cpu().numpy()
    return own / max(float(np.linalg.norm(own)), 1e-30)


def _slopes(batch: Asked) -> dict[str, Tensor]:
    """Of the loss of each item, in its own gates: (B, H, 1, 1) and (B, 1, F) by name."""
    sizes = batch.num_rows()
    gates = _open_gates(batch.model, sum(sizes))
    with torch.enable_grad(), batch.model.net.encoder.gate(gates):
        loss, _ = batch.total()
        found = torch.autograd.grad(loss, list(gates.values()))
    return {
        name: torch.stack([rows.sum(0) for rows in own.split(sizes)])
        for name, own in zip(gates, found, strict=True)
    }


def _open_gates(model: FineTuned, number: int) -> dict[str, Tensor]:
    choice, gates = model.net.recipe.encoder, dict[str, Tensor]()
    for block in range(len(model.net.encoder.blocks)):
        heads = choice.mixer_at(block).shape(choice.inner_widths[block][1]).heads
        units = choice.feed_forward_at(block).inner(choice.inner_widths[block][1])
        for site, shape in zip(SITES, ((number, heads, 1, 1), (number, 1, units)), strict=True):
            gate = torch.ones(shape, device=model.device)
            gates[f"blocks.{block}.{site}"] = gate.requires_grad_()
    return gates
