"""An encoder that is only read, computed faster: in fewer bits, its matrices laid out once the way
this machine reads them."""

import copy

import torch

from bertwright.axes import ReadingPrecision
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.eight_bits import in_eight_bits
from bertwright.encoder.kernels.packed import pack
from bertwright.machine.speed import multiplies_bfloat16


def faster(encoder: Encoder, precision: ReadingPrecision, device: torch.device) -> Encoder:
    """A copy in a precision, or in float32 the encoder itself; nothing in a copy has a name to be
    looked at."""
    if precision == "float32":
        return encoder
    encoder = copy.deepcopy(encoder)
    native = multiplies_bfloat16(device)
    if native or precision == "bf16":
        encoder.bfloat16()
    if precision == "int8":
        in_eight_bits(encoder)
        encoder.fuse_attention()
    elif native and device.type == "cpu":
        pack(encoder)
    return encoder
