"""Heads and units are taken out of an encoder, whose matrices are smaller then: a function of its
weights, its choice and what is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.mixers import AttentionChoice
from bertwright.errors import UserError
from bertwright.model.folder import filled
from bertwright.model.model import Model

Places = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Kept:
    """By number, what stays of every block: ``heads`` of its attention, ``units`` of its
    feed-forward; None for all. Of blocks that share, all keep the same."""

    heads: Places | None = None
    units: Places | None = None

    def cut(self, choice: EncoderChoice) -> EncoderChoice:
        """The encoder that is left of one.

        Errors: UserError where nothing can be taken from such an encoder.
        """
        sizes = {
            name: tuple(len(own) for own in places)
            for name, places in (("heads", self.heads), ("units", self.units))
            if places is not None
        }
        before = {} if choice.cut is None else choice.cut.model_dump()
        try:
            return choice.changed("encoder", cut={**before, **sizes})
        except ValueError as error:
            raise UserError(str(error)) from error


def cut_model(model: Model, kept: Kept) -> Model:
    """What is left of a model.

    Errors: UserError where nothing can be taken from its encoder.
    """
    recipe, weights = model.recipe, weights_once(model)
    left = recipe.model_copy(update={"encoder": kept.cut(recipe.encoder)})
    small = cut_weights(weights, recipe.encoder, kept)
    return filled(left, model.vocabulary_size, small, recipe.name)


def weights_once(module: nn.Module) -> dict[str, Tensor]:
    """By name; what blocks share has one name here, and in a state one for each of them."""
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


def cut_weights(
    weights: Mapping[str, Tensor], choice: EncoderChoice, kept: Kept, prefix: str = "encoder."
) -> dict[str, Tensor]:
    """The weights by name, ``prefix`` before those of the encoder that is ``choice``, of what
    ``kept.cut(choice)`` is then."""
    found = dict(weights)
    for block, _ in enumerate(choice.depth.orders()):
        if kept.heads is not None:
            at = f"{prefix}blocks.{block}.sublayers.attention."
            found |= _attention(found, choice, block, kept.heads[block], at)
        if kept.units is not None:
            at = f"{prefix}blocks.{block}.sublayers.feed_forward."
            found |= _feed_forward(found, choice, block, kept.units[block], at)
    return found


def _attention(
    weights: Mapping[str, Tensor], choice: EncoderChoice, block: int, heads: Sequence[int], at: str
) -> dict[str, Tensor]:
    mixer = choice.mixer_at(block)
    assert isinstance(mixer, AttentionChoice), "an encoder choice cuts no other mixer"
    shape = mixer.shape(choice.inner_widths[block][1])
    parts = 3 if mixer.gate is None else 4
    within = torch.arange(shape.inner).view(shape.heads, -1)[list(heads)].flatten()
    return _taken(weights, at, "projection", "output", within, shape.inner, parts)


def _feed_forward(
    weights: Mapping[str, Tensor], choice: EncoderChoice, block: int, units: Sequence[int], at: str
) -> dict[str, Tensor]:
    feed_forward = choice.feed_forward_at(block)
    inner = feed_forward.inner(choice.inner_widths[block][1])
    parts = 2 if feed_forward.gated else 1
    return _taken(weights, at, "up", "down", torch.tensor(list(units)), inner, parts)


def _taken(
    weights: Mapping[str, Tensor],
    at: str,
    first: str,
    last: str,
    within: Tensor,
    inner: int,
    parts: int,
) -> dict[str, Tensor]:
    """Rows of the ``first`` matrix, of each of its ``parts``, and columns of the ``last``."""
    rows = torch.cat([inner * part + within for part in range(parts)])
    found = {
        name: weights[name][rows]
        for name in (f"{at}{first}.weight", f"{at}{first}.bias")
        if name in weights
    }
    name = f"{at}{last}.weight"
    return found | ({name: weights[name][:, within]} if name in weights else {})
