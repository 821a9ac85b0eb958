"""LSTM over runs of tokens: the explicit definition, and PyTorch's fused kernel.

[i f g o] = W x_t + R h_{t-1} + b, c_t = sig(f) c_{t-1} + sig(i) tanh(g), h_t = P sig(o) tanh(c_t).
Without a projection P the state is as wide as the cell. Sources: Hochreiter and Schmidhuber 1997;
Gers et al. 2000 for the forget gate; Sak et al. 2014 for the projection.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class LSTMWeights(NamedTuple):
    """The weights: input (4H, D), recurrent (4H, S), bias (4H,), projection (S, H) or None.

    The gates are in the order i, f, g, o.
    """

    input: Tensor
    recurrent: Tensor
    bias: Tensor
    projection: Tensor | None


class LSTMState(NamedTuple):
    """A recurrent state: h (R, S), and the cell c (R, H)."""

    h: Tensor
    c: Tensor


class LSTMTrace(NamedTuple):
    """All values of R runs: h (R, T, S), cells (R, T, H), activated gates (R, T, 4H)."""

    h: Tensor
    cell: Tensor
    gates: Tensor


def run_lstm_explicit(
    x: Tensor, initial_state: LSTMState, weights: LSTMWeights, clip: float | None = None
) -> LSTMTrace:
    """Run step by step over x (R, T, D); ``clip`` bounds the cell and the projected state."""
    state = initial_state
    steps: list[tuple[Tensor, Tensor, Tensor]] = []
    for gate_inputs in F.linear(x, weights.input, weights.bias).unbind(1):
        state, gates = lstm_step(gate_inputs, state, weights, clip)
        steps.append((state.h, state.c, gates))
    h_steps, c_steps, gate_steps = zip(*steps, strict=True)
    return LSTMTrace(torch.stack(h_steps, 1), torch.stack(c_steps, 1), torch.stack(gate_steps, 1))


def lstm_step(
    gate_inputs: Tensor, state: LSTMState, weights: LSTMWeights, clip: float | None = None
) -> tuple[LSTMState, Tensor]:
    """Return the next state and the activated gates, given the gate inputs (R, 4H) of a token."""
    i, f, g, o = (gate_inputs + F.linear(state.h, weights.recurrent)).chunk(4, dim=1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = _clip(f * state.c + i * g, clip)
    h = o * torch.tanh(c)
    if weights.projection is not None:
        h = _clip(F.linear(h, weights.projection), clip)
    return LSTMState(h, c), torch.cat((i, f, g, o), dim=1)


def final_state(trace: LSTMTrace, lengths: Tensor) -> LSTMState:
    """Return the state at the end of each run, given the ``lengths`` (R,) of the runs."""
    runs = torch.arange(len(lengths), device=lengths.device)
    return LSTMState(trace.h[runs, lengths - 1], trace.cell[runs, lengths - 1])


def run_lstm_fused(
    x: Tensor, lengths: Tensor, initial_state: LSTMState, weights: LSTMWeights
) -> tuple[Tensor, LSTMState]:
    """Return h (R, T, S), 0 after the end of a run, and the final states.

    Projections and clipping are not supported.
    """
    is_unpadded = bool((lengths == x.shape[1]).all())
    start = (initial_state.h[None].contiguous(), initial_state.c[None].contiguous())
    parameters = [weights.input, weights.recurrent, weights.bias, torch.zeros_like(weights.bias)]
    settings = (True, 1, 0.0, torch.is_grad_enabled(), False)
    if is_unpadded:
        h_steps, h, c = torch.lstm(x, start, parameters, *settings, True)
        return h_steps, LSTMState(h[0], c[0])
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    order = packed.sorted_indices
    start = (start[0][:, order], start[1][:, order])
    data, h, c = torch.lstm(packed.data, packed.batch_sizes, start, parameters, *settings)
    h_steps, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True)
    return h_steps, LSTMState(h[0][packed.unsorted_indices], c[0][packed.unsorted_indices])


def _clip(x: Tensor, clip: float | None) -> Tensor:
    return x if clip is None else x.clamp(-clip, clip)
