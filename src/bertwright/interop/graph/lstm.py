"""Recurrent layers over right-padded sequences, for export.

The encoder packs the real tokens of a batch, with shapes that depend on the batch; a graph cannot
do that. The results are the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.encoder.encoder import Encoder
from bertwright.modules.attention.mask import ScanDirection
from bertwright.modules.context import BlockContext
from bertwright.modules.recurrent.lstm import LSTMLayer
from bertwright.modules.recurrent.lstm_kernels import LSTMState, LSTMWeights, lstm_step
from bertwright.modules.recurrent.recurrent_mixer import RecurrentMixer

LSTM_OPERATOR = "::LSTM"
"""Name of the ONNX operator, whose gates are in the order i, o, f, g."""


def use_padded_lstm_mixers(encoder: Encoder, with_onnx_operators: bool) -> None:
    """Replace the recurrent layers of an encoder by layers over padded sequences.

    ``with_onnx_operators`` is faster where a graph becomes ONNX, and PyTorch cannot run it.
    """
    for module in list(encoder.modules()):
        for name, child in module.named_children():
            if isinstance(child, RecurrentMixer):
                if not all(isinstance(layer, LSTMLayer) for layer in child.direction_layers):
                    raise UserError(
                        "of recurrent layers only the LSTM has a graph: export a model with "
                        "encoder.mixer.kind lstm"
                    )
                setattr(module, name, PaddedLstmMixer(child, with_onnx_operators))
    encoder.scan_directions = ()


class PaddedLstmMixer(nn.Module):
    """The LSTM layers of a recurrent mixer, computed over padded sequences."""

    def __init__(self, mixer: RecurrentMixer, with_onnx_operators: bool) -> None:
        super().__init__()
        self.with_onnx_operators = with_onnx_operators
        self.directions: Sequence[ScanDirection] = mixer.directions
        self.direction_layers = mixer.direction_layers
        self.layer_inputs = mixer.layer_inputs

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map (B, L, in) to (B, L, out), with 0 at padding."""
        attention_mask = context.attention.mask.is_real
        assert attention_mask is not None, "a graph has an attention mask"
        parts = self.layer_inputs(x)
        layers = (cast(LSTMLayer, layer) for layer in self.direction_layers)
        outputs = [
            _run_layer(*inputs, attention_mask, self.with_onnx_operators)
            for inputs in zip(layers, self.directions, parts, strict=True)
        ]
        return torch.cat(outputs, dim=-1)


def _run_layer(
    layer: LSTMLayer,
    direction: ScanDirection,
    x: Tensor,
    attention_mask: Tensor,
    with_onnx_operators: bool,
) -> Tensor:
    weights = layer.build_weights(None, 0)
    is_plain = layer.clip is None and weights.projection is None
    if is_plain and with_onnx_operators:
        return _run_operator(x, attention_mask, weights, direction)
    return _run_scan(x, attention_mask, weights, layer.clip, direction)


def _run_operator(
    x: Tensor, attention_mask: Tensor, weights: LSTMWeights, direction: ScanDirection
) -> Tensor:
    """Run the ONNX operator, which supports neither a projection nor our clipping."""

    def reorder_gates(gates: Tensor) -> Tensor:
        i, f, g, o = gates.chunk(4)
        return torch.cat((i, o, f, g))[None]

    (batch, length, _), width = x.shape, weights.recurrent.shape[1]
    bias = reorder_gates(weights.bias)
    (output,) = torch.onnx.ops.symbolic_multi_out(
        LSTM_OPERATOR,
        (
            x.transpose(0, 1),
            reorder_gates(weights.input),
            reorder_gates(weights.recurrent),
            torch.cat((bias, torch.zeros_like(bias)), dim=1),
            attention_mask.sum(1).to(torch.int32),
        ),
        {"hidden_size": width, "direction": "forward" if direction == "forward" else "reverse"},
        dtypes=(x.dtype,),
        shapes=((length, 1, batch, width),),
    )
    return output[:, 0].transpose(0, 1)


def _run_scan(
    x: Tensor,
    attention_mask: Tensor,
    weights: LSTMWeights,
    clip: float | None,
    direction: ScanDirection,
) -> Tensor:
    """Run the definition as a loop in the graph; padding does not change the state."""
    from torch._higher_order_ops.scan import scan

    inputs = F.linear(x, weights.input, weights.bias).transpose(0, 1)
    is_real = attention_mask.transpose(0, 1)[..., None]
    batch, cell = x.shape[0], weights.recurrent.shape[0] // 4
    initial_state = LSTMState(
        x.new_zeros(batch, weights.recurrent.shape[1]), x.new_zeros(batch, cell)
    )

    def step(carry: Any, step_input: Any) -> tuple[list[Tensor], Tensor]:
        (h, c), (gates, real) = carry, step_input
        new, _ = lstm_step(gates, LSTMState(h, c), weights, clip)
        h, c = torch.where(real, new.h, h), torch.where(real, new.c, c)
        return [h, c], torch.where(real, h, 0.0)

    run_scan = cast(Callable[..., tuple[Any, Tensor]], scan)
    _, outputs = run_scan(
        step, list(initial_state), (inputs, is_real), reverse=direction == "backward"
    )
    return outputs.transpose(0, 1)
