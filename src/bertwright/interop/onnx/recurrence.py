"""Recurrent layers as a graph reads them: whole rows, in which the places that hold nothing stand
behind those that do.

The encoder lays a batch out in runs of text, as many and as long as there are; a graph for any
batch cannot. What is read is the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.recurrence import State, Weights, step
from bertwright.encoder.mixers.lstm import Lstm, LstmMixer
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.visibility import Way

OPERATOR = "::LSTM"
"""Of ONNX itself. Its gates lie in the order i, o, f, g."""


def lay_in_rows(encoder: Encoder) -> None:
    """Let the recurrent layers of an encoder read whole rows, in place."""
    for module in list(encoder.modules()):
        for name, child in module.named_children():
            if isinstance(child, LstmMixer):
                setattr(module, name, RowMixer(child))
    encoder.ways = ()


class RowMixer(nn.Module):
    """The layers of an :class:`LstmMixer`, over rows."""

    def __init__(self, mixer: LstmMixer) -> None:
        super().__init__()
        self.of: Sequence[Way] = mixer.of
        self.ways = mixer.ways

    def forward(self, x: Tensor, around: Surroundings, *unused: None) -> Tensor:
        """x (B, L, reads) to (B, L, writes); 0 where nothing stands."""
        real = around.view.real
        assert real is not None, "a graph is told which places are real"
        parts = x.chunk(len(self.of), dim=-1)
        layers = (cast(Lstm, layer) for layer in self.ways)
        found = [_read(*each, real) for each in zip(layers, self.of, parts, strict=True)]
        return torch.cat(found, dim=-1)


def _read(layer: Lstm, way: Way, x: Tensor, real: Tensor) -> Tensor:
    weights = layer.weights(None, 0)
    plain = layer.clip is None and weights.projection is None
    if plain:
        return _by_operator(x, real, weights, way)
    return _step_by_step(x, real, weights, layer.clip, way)


def _by_operator(x: Tensor, real: Tensor, weights: Weights, way: Way) -> Tensor:
    """By the operator, which neither projects nor clips as ours do."""

    def in_their_order(gates: Tensor) -> Tensor:
        i, f, g, o = gates.chunk(4)
        return torch.cat((i, o, f, g))[None]

    (batch, length, _), width = x.shape, weights.recurrent.shape[1]
    bias = in_their_order(weights.bias)
    (found,) = torch.onnx.ops.symbolic_multi_out(
        OPERATOR,
        (
            x.transpose(0, 1),
            in_their_order(weights.input),
            in_their_order(weights.recurrent),
            torch.cat((bias, torch.zeros_like(bias)), dim=1),
            real.sum(1).to(torch.int32),
        ),
        {"hidden_size": width, "direction": "forward" if way == "forward" else "reverse"},
        dtypes=(x.dtype,),
        shapes=((length, 1, batch, width),),
    )
    return found[:, 0].transpose(0, 1)


def _step_by_step(
    x: Tensor, real: Tensor, weights: Weights, clip: float | None, way: Way
) -> Tensor:
    """The definition as a loop of the graph; a place that holds nothing changes nothing."""
    from torch._higher_order_ops.scan import scan

    entering = F.linear(x, weights.input, weights.bias).transpose(0, 1)
    there = real.transpose(0, 1)[..., None]
    batch, cell = x.shape[0], weights.recurrent.shape[0] // 4
    begun = State(x.new_zeros(batch, weights.recurrent.shape[1]), x.new_zeros(batch, cell))

    def stepped(before: Any, read: Any) -> tuple[list[Tensor], Tensor]:
        (h, c), (own, holds) = before, read
        new, _ = step(own, State(h, c), weights, clip)
        h, c = torch.where(holds, new.h, h), torch.where(holds, new.c, c)
        return [h, c], torch.where(holds, h, 0.0)

    run = cast(Callable[..., tuple[Any, Tensor]], scan)
    _, found = run(stepped, list(begun), (entering, there), reverse=way == "backward")
    return found.transpose(0, 1)
