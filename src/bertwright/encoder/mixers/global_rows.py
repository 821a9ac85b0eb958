"""Queries, keys and values of their own for the places that see everything (Beltagy et al. 2020,
section 3.1)."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bertwright.encoder.kernels.attention import attend
from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.positions import HeadShape, Rotation, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, inside

DROPOUT_SITE = 7
"""The dropout site of these weights within a block."""


class GlobalRows(nn.Module):
    """What wide places find, in the place of what attention found for them.

    Other places see a wide one by its usual key and value: these are asked by wide places only.
    """

    parameter_roles: ClassVar[dict[str, Role]] = {"projection.weight": Role("matrix", parts=3)}

    def __init__(self, shape: HeadShape, bias: bool, rate: float) -> None:
        super().__init__()
        self.shape, self.rate, self.biased = shape, rate, bias
        self.projection = nn.Linear(shape.width, 3 * shape.width, bias)

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
    ) -> Tensor:
        """x (B, L, D) and the context (B, H, L, d) of all places to a context (B, H, L, d)."""
        wide = around.view.wide
        if wide is None:
            return context
        batch, length, width = x.shape
        heads, head_width = self.shape.heads, self.shape.head_width
        places = wide.places.expand(batch, -1)
        asking = x.gather(1, places[..., None].expand(-1, -1, width))
        own_weight, weight = self.projection.weight.split((width, 2 * width))
        own_bias, bias = (
            self.projection.bias.split((width, 2 * width)) if self.biased else (None, None)
        )
        query = linear(asking, own_weight, own_bias).view(batch, -1, heads, head_width)
        query = query.transpose(1, 2)
        found = linear(x, weight, bias).view(batch, length, 2, heads, head_width)
        key, value = found.permute(2, 0, 3, 1, 4).unbind(0)
        if around.rotation is not None:
            query = rotate(query, _at(places, around.rotation))
            key = rotate(key, around.rotation)
        added = around.bias
        if added is not None:
            added = added.expand(batch, -1, -1, -1)
            rows = places[:, None, :, None].expand(-1, added.shape[1], -1, added.shape[3])
            added = added.gather(2, rows)
        here = inside(site, "global")
        numbers = None if noise is None else self._numbers(places, length, noise)
        call = Call(
            query,
            key,
            value,
            wide.view,
            self.rate,
            noise,
            here,
            added,
            dropout_site=DROPOUT_SITE,
            numbers=numbers,
        )
        answers = attend(call, "auto")
        slot = wide.slot.expand(batch, -1)[:, None, :, None]
        spread = answers.gather(2, slot.expand(-1, heads, -1, head_width))
        return torch.where(wide.is_wide[:, None, :, None], spread, context)

    def _numbers(self, places: Tensor, length: int, noise: Noise) -> Tensor:
        """Which weight of all places (B, H, L, L) each one is in the global batch, (B, H, G, L)."""
        row = torch.arange(len(places), device=places.device) + noise.first_row
        lane = row[:, None] * self.shape.heads + torch.arange(self.shape.heads, device=row.device)
        number = (lane[..., None] * length + places[:, None]) * length
        key = torch.arange(length, dtype=torch.int32, device=row.device)
        return number.to(torch.int32)[..., None] + key


def _at(places: Tensor, rotation: Rotation) -> Rotation:
    """The rotation (B, 1, G, d) of some places."""

    def chosen(part: Tensor) -> Tensor:
        own = part.expand(places.shape[0], -1, -1, -1)
        return own.gather(2, places[:, None, :, None].expand(-1, -1, -1, own.shape[3]))

    return chosen(rotation[0]), chosen(rotation[1])
