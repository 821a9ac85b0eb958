"""Bottleneck adapters after the sublayers of a frozen encoder (Houlsby et al. 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.core.rng import parameter_stream, stream_key
from bertwright.encoder.encoder import Encoder, get_blocks
from bertwright.modules.initialisation import fill_normal

INIT_STD = 1e-2
"""Standard deviation of the weights, so that an adapter starts near the identity (section 3.1)."""


class Adapter(nn.Module):
    """A bottleneck adapter: x + up(gelu(down(x))), (..., D) to (..., D)."""

    def __init__(self, input_size: int, bottleneck_size: int) -> None:
        super().__init__()
        self.down, self.up = (
            nn.Linear(input_size, bottleneck_size),
            nn.Linear(bottleneck_size, input_size),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(F.gelu(self.down(x)))


def insert_adapters(encoder: Encoder, bottleneck_size: int) -> None:
    """Add an adapter after every sublayer; blocks that share sublayers have separate adapters."""
    for block in get_blocks(encoder):
        for name, width in block.output_widths.items():
            block.adapters[name] = Adapter(width, bottleneck_size)


@torch.no_grad()
def init_adapters(encoder: Encoder, seed: int) -> None:
    """Initialise the adapters of an encoder near the identity."""
    for name, parameter in encoder.named_parameters():
        if ".adapters." in name:
            parameter.zero_()
            if parameter.dim() == 2:
                fill_normal(
                    parameter, INIT_STD, 2.0, stream_key(seed, "adapters", parameter_stream(name))
                )
