"""Small networks behind the sublayers of an encoder that stays as it is (Houlsby et al. 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder, blocks_of
from bertwright.encoder.initialisation import draw
from bertwright.randomness import key

DEVIATION = 1e-2
"""Of the matrices at first, so that an adapter begins near nothing (section 3.1)."""


class Adapter(nn.Module):
    """x + up(gelu(down(x))): (..., D) to (..., D)."""

    def __init__(self, outer: int, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(outer, width), nn.Linear(width, outer)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(F.gelu(self.down(x)))


def insert_adapters(encoder: Encoder, width: int) -> None:
    """Put an adapter behind every sublayer; where blocks share their sublayers, each block has
    adapters of its own."""
    for block in blocks_of(encoder):
        for name, outer in block.written.items():
            block.adapters[name] = Adapter(outer, width)


@torch.no_grad()
def begin_adapters(encoder: Encoder, seed: int) -> None:
    """Draw the adapters of an encoder, near nothing."""
    for name, parameter in encoder.named_parameters():
        if ".adapters." in name:
            parameter.zero_()
            if parameter.dim() == 2:
                draw(parameter, DEVIATION, 2.0, key(seed, "adapters", name))
