"""Asking a model for pieces that it does not see.

A masked model sees masks in their places. One that was asked in permuted orders has never seen a
mask: to it the hidden places come last in the order, so that no other place sees them, and behind
the text stands a place that asks for each.
"""

from dataclasses import replace

import torch
from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.model.model import Model
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import Permutation


def last_asked(model: Model) -> list[Objective]:
    """The questions of the last of its training; none where nobody said what it was."""
    recipe = model.recipe
    return list(recipe.objectives_of(len(recipe.phases) - 1).values()) if recipe.objectives else []


def states_asked(
    model: Model,
    pieces: Tensor,
    coordinates: Coordinates,
    hidden: Tensor,
    where: Tensor,
    mask: int,
) -> Tensor:
    """The states (B, m, D) that name the pieces at places ``where`` (B, m) int64, of rows (B, L)
    whose ``hidden`` places (B, L) bool are not seen; ``mask`` is the piece that stands for them."""
    permuted = next((o for o in last_asked(model) if isinstance(o, Permutation)), None)
    if permuted is not None:
        extended = torch.cat((pieces, torch.zeros_like(where)), 1)
        rule = model.encoder.rule & permuted.visibility
        states = model(extended, _asking(coordinates, hidden, where), rule)
        return states[:, pieces.shape[1] :]
    masked = next((o for o in last_asked(model) if isinstance(o, Masked)), None)
    shift = 0 if masked is None else masked.shift
    states = model(pieces.masked_fill(hidden, mask), coordinates)
    index = (where - shift)[..., None].expand(-1, -1, states.shape[-1])
    return states.gather(1, index)


def _asking(coordinates: Coordinates, hidden: Tensor, where: Tensor) -> Coordinates:
    """The coordinates of rows with places behind them that ask for what stands at ``where``."""

    def extended(own: Tensor) -> Tensor:
        own = own.expand(hidden.shape)
        return torch.cat((own, own.gather(1, where)), 1)

    told = replace(coordinates, position=coordinates.at, order=hidden.long()).each(extended)
    number = torch.arange(hidden.shape[1] + where.shape[1], device=where.device)[None]
    asking = (number >= hidden.shape[1]).expand(len(hidden), -1)
    return replace(told, place=number, asking=asking)
