"""Faster copies of an encoder for inference, with lower precision and packed weights."""

import copy

import torch

from bertwright.core.config import InferencePrecision
from bertwright.encoder.encoder import Encoder
from bertwright.modules.inference.int8_linear import quantise_linear_layers
from bertwright.modules.inference.packed_linear import pack_linear_layers
from bertwright.runtime.matmul_throughput import supports_bfloat16


def inference_encoder(
    encoder: Encoder, precision: InferencePrecision, device: torch.device
) -> Encoder:
    """Return a copy of the encoder in ``precision``, or the encoder itself for float32.

    Copies do not support hooks on intermediate values.
    """
    if precision == "float32":
        return encoder
    encoder = copy.deepcopy(encoder)
    bf16_is_native = supports_bfloat16(device)
    if bf16_is_native or precision == "bf16":
        encoder.bfloat16()
    if precision == "int8":
        quantise_linear_layers(encoder)
        encoder.compile_softmax()
    elif bf16_is_native and device.type == "cpu":
        pack_linear_layers(encoder)
    return encoder
