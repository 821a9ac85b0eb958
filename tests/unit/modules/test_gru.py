"""Gated recurrent units: the equations, PyTorch's layers, documents and padding."""

import pytest
import torch
from torch import nn

from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.modules.recurrent.gru import run_gru
from bertwright.modules.token_tensors import TokenInfo

WIDTH, EMBEDDING, VOCABULARY = 12, 7, 20
TOKENS = torch.arange(24).view(2, 12) % VOCABULARY
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] * 9 + [-1] * 3])


def build_encoder(mixer: dict, visibility: str, layers: int = 2) -> Encoder:
    config = EncoderConfig.model_validate(
        {
            "width": WIDTH,
            "depth": {"kind": "stack", "layers": layers, "order": "s"},
            "embeddings": {"kind": "factorised", "width": EMBEDDING, "norm": False},
            "positions": "none",
            "visibility": {"kind": "and", "rules": [visibility, "document"]},
            "mixer": mixer,
            "norm": "none",
            "residual": "none",
        }
    )
    return Encoder(config, VOCABULARY).double()


def stock_layers(encoder: Encoder, kind: type, bidirectional: bool):
    """Return PyTorch's layers with the weights of an encoder."""
    layers = len(encoder.blocks)
    stock = kind(EMBEDDING, WIDTH // (1 + bidirectional), layers, True, True, 0.0, bidirectional)
    for number, block in enumerate(encoder.blocks):
        mixer = block.sublayers["attention"]
        for suffix, layer in zip(("", "_reverse"), mixer.direction_layers, strict=False):
            state = {
                "weight_ih": layer.input.weight,
                "weight_hh": layer.recurrent.weight,
                "bias_ih": layer.input.bias,
                "bias_hh": getattr(layer, "recurrent_bias", layer.recurrent.bias),
            }
            for name, weight in state.items():
                getattr(stock, f"{name}_l{number}{suffix}").data = weight.detach()
    return stock.double()


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("visibility", ["causal", "bidirectional"])
def test_layers_equal_those_of_pytorch(kind, visibility):
    mixer = {"kind": kind.__name__.lower(), "biases": 2}
    mixer |= {"forget": 0.0} if kind is nn.LSTM else {}
    encoder = build_encoder(mixer, visibility)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    stock = stock_layers(encoder, kind, visibility == "bidirectional")
    info = TokenInfo(torch.arange(12)[None], document_ids=DOCUMENTS)
    states = encoder(TOKENS, info)
    embedded = encoder.embeddings.tokens.weight[TOKENS]
    for row, span in ((0, slice(0, 5)), (0, slice(5, 12)), (1, slice(0, 9))):
        expected, _ = stock(embedded[row : row + 1, span])
        torch.testing.assert_close(states[row, span], expected[0], atol=1e-9, rtol=1e-9)


def test_a_state_reset_before_the_product_follows_the_equations():
    generator = torch.Generator().manual_seed(0)
    inputs, weights, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 5, 12), (12, 4), (12,))
    )
    states = run_gru(inputs, weights, bias, "before")
    u_r, u_z, u_n = weights.chunk(3)
    b_r, b_z, b_n = bias.chunk(3)
    for run, expected in zip(inputs, states, strict=True):
        h = torch.zeros(4, dtype=torch.float64)
        for step, state in zip(run, expected, strict=True):
            x_r, x_z, x_n = step.chunk(3)
            r, z = torch.sigmoid(x_r + u_r @ h + b_r), torch.sigmoid(x_z + u_z @ h + b_z)
            h = (1 - z) * torch.tanh(x_n + u_n @ (r * h) + b_n) + z * h
            torch.testing.assert_close(h, state)
