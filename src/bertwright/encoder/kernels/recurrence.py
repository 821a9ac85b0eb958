"""Long short-term memory over runs of text: the definition, and PyTorch's fused pass.

[i f g o] = W x_t + R h_{t-1} + b, c_t = sig(f) c_{t-1} + sig(i) tanh(g), h_t = P sig(o) tanh(c_t);
without a projection P the state is as wide as the cell (Hochreiter and Schmidhuber 1997, with the
forget gate of Gers et al. 2000; the projection is that of Sak et al. 2014).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Weights(NamedTuple):
    """Input (4H, D), recurrent (4H, S), bias (4H,) and projection (S, H), None where S is H; the
    gates lie in the order i, f, g, o."""

    input: Tensor
    recurrent: Tensor
    bias: Tensor
    projection: Tensor | None


class State(NamedTuple):
    """What has been read so far: h (R, S), and the cell c (R, H)."""

    h: Tensor
    c: Tensor


class Trace(NamedTuple):
    """All that a definition comes by: h (R, T, S), the cells (R, T, H), the gates (R, T, 4H) after
    their activations."""

    h: Tensor
    cell: Tensor
    gates: Tensor


def explicit(x: Tensor, start: State, weights: Weights, clip: float | None = None) -> Trace:
    """Step by step over x (R, T, D); ``clip`` bounds the cell and the projected state."""
    state = start
    steps: list[tuple[Tensor, Tensor, Tensor]] = []
    for entering in F.linear(x, weights.input, weights.bias).unbind(1):
        state, gates = step(entering, state, weights, clip)
        steps.append((state.h, state.c, gates))
    h_steps, c_steps, gate_steps = zip(*steps, strict=True)
    return Trace(torch.stack(h_steps, 1), torch.stack(c_steps, 1), torch.stack(gate_steps, 1))


def step(
    entering: Tensor, before: State, weights: Weights, clip: float | None = None
) -> tuple[State, Tensor]:
    """What ``before`` becomes by what enters the gates (R, 4H) at a place, and the gates."""
    i, f, g, o = (entering + F.linear(before.h, weights.recurrent)).chunk(4, dim=1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = _clipped(f * before.c + i * g, clip)
    h = o * torch.tanh(c)
    if weights.projection is not None:
        h = _clipped(F.linear(h, weights.projection), clip)
    return State(h, c), torch.cat((i, f, g, o), dim=1)


def final(trace: Trace, lengths: Tensor) -> State:
    """What a run of each length (R,) has come to at its end."""
    run = torch.arange(len(lengths), device=lengths.device)
    return State(trace.h[run, lengths - 1], trace.cell[run, lengths - 1])


def fused(x: Tensor, lengths: Tensor, start: State, weights: Weights) -> tuple[Tensor, State]:
    """h (R, T, S), 0 behind the end of a run, and what every run has come to, in one call; without
    projection or clip."""
    whole = bool((lengths == x.shape[1]).all())
    begun = (start.h[None].contiguous(), start.c[None].contiguous())
    flat = [weights.input, weights.recurrent, weights.bias, torch.zeros_like(weights.bias)]
    settings = (True, 1, 0.0, torch.is_grad_enabled(), False)
    if whole:
        found, h, c = torch.lstm(x, begun, flat, *settings, True)
        return found, State(h[0], c[0])
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    order = packed.sorted_indices
    begun = (begun[0][:, order], begun[1][:, order])
    data, h, c = torch.lstm(packed.data, packed.batch_sizes, begun, flat, *settings)
    found, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True)
    return found, State(h[0][packed.unsorted_indices], c[0][packed.unsorted_indices])


def _clipped(x: Tensor, clip: float | None) -> Tensor:
    return x if clip is None else x.clamp(-clip, clip)
