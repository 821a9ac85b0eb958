"""Pooling of a sequence's hidden states by a head, by name.

``first`` takes the first position, ``last`` the real one that is read last (for causal encoders;
the first of a reversed one), ``mean`` the mean over real positions. ``linear-gain`` is a mean with
weight t / T at the t-th of T positions in reading order (compare the linear label gain of Dai and
Le 2015). ``last-max-mean`` concatenates last, maximum and mean (Howard and Ruder 2018, section
3.3). ``siamese`` concatenates the means of two independently encoded texts, their
absolute difference and their product (Conneau et al. 2017, section 3.1). ``positions`` takes the
output positions: the first token of every word, or every token of a text. ``pair`` leaves the
hidden states of both texts of a pair to the head, and ``all`` keeps every position, for a decoder.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

HeadPooling = Literal[
    "first",
    "last",
    "mean",
    "linear-gain",
    "last-max-mean",
    "siamese",
    "positions",
    "pair",
    "all",
]


def pooling_positions(
    pooling: HeadPooling,
    token_ids: Tensor,
    document_ids: Tensor | None,
    positions: Tensor | None,
    reads_backward: bool = False,
) -> Tensor | None:
    """Return the flat positions (M,) of token_ids (B, L) to read; None for all.

    ``reads_backward`` says that the first position is read last.
    """
    num_sequences, length = token_ids.shape
    start = torch.arange(num_sequences, device=token_ids.device) * length
    match pooling:
        case "first":
            return start
        case "last":
            if reads_backward:
                return start
            return start + (
                length - 1 if document_ids is None else last_token_positions(document_ids)
            )
        case "positions":
            assert positions is not None, "pooling: positions requires positions"
            return positions
        case _:
            return None


def last_token_positions(document_ids: Tensor) -> Tensor:
    """Return the last real position (B,) of each sequence, given document_ids (B, L)."""
    position = torch.arange(document_ids.shape[1], device=document_ids.device)
    return torch.where(document_ids >= 0, position, 0).amax(1)


def mean_pool(
    hidden_states: Tensor, document_ids: Tensor | None, reads_backward: bool = False
) -> Tensor:
    """Return the mean (B, D) of hidden_states (B, L, D) over the real positions."""
    if document_ids is None:
        return hidden_states.mean(1)
    real = (document_ids >= 0).to(hidden_states.dtype)
    return torch.einsum("bld,bl->bd", hidden_states, real / real.sum(1, keepdim=True))


def linear_gains(is_real: Tensor, reads_backward: bool = False) -> Tensor:
    """Return the gain t / T (B, L) of each position of sequences, given the real ones (B, L).

    t counts the T real positions of a sequence from 1, in reading order; padding has gain 0.
    """
    steps = is_real.cumsum(1)
    lengths = steps[:, -1:]
    steps = lengths + 1 - steps if reads_backward else steps
    return (steps * is_real).float() / lengths


def linear_gain_pool(
    hidden_states: Tensor, document_ids: Tensor | None, reads_backward: bool = False
) -> Tensor:
    """Return the mean (B, D) of hidden_states (B, L, D), weighted by the linear gains."""
    if document_ids is None:
        document_ids = torch.zeros_like(hidden_states[..., 0])
    gains = linear_gains(document_ids >= 0, reads_backward)
    weights = (gains / gains.sum(1, keepdim=True)).to(hidden_states.dtype)
    return torch.einsum("bld,bl->bd", hidden_states, weights)


def last_max_mean_pool(
    hidden_states: Tensor, document_ids: Tensor | None, reads_backward: bool = False
) -> Tensor:
    """Return last, maximum and mean (B, 3 D) of hidden_states (B, L, D)."""
    if document_ids is None:
        document_ids = torch.zeros_like(hidden_states[..., 0])
    real = hidden_states.masked_fill(
        (document_ids < 0)[..., None], torch.finfo(hidden_states.dtype).min
    )
    last = hidden_states[:, 0]
    if not reads_backward:
        last = hidden_states[
            torch.arange(hidden_states.shape[0], device=hidden_states.device),
            last_token_positions(document_ids),
        ]
    return torch.cat((last, real.amax(1), mean_pool(hidden_states, document_ids)), dim=-1)


def siamese_pool(
    hidden_states: Tensor, document_ids: Tensor | None, reads_backward: bool = False
) -> Tensor:
    """Return pair features (B, 4 D) from hidden_states (B, L, D) with two documents each."""
    assert document_ids is not None, "siamese sequences have document ids"
    first, second = (
        mean_pool(hidden_states, torch.where(document_ids == number, 0, -1)) for number in (0, 1)
    )
    return torch.cat((first, second, (first - second).abs(), first * second), dim=-1)


SEQUENCE_POOLERS: dict[HeadPooling, Callable[[Tensor, Tensor | None, bool], Tensor]] = {
    "mean": mean_pool,
    "linear-gain": linear_gain_pool,
    "last-max-mean": last_max_mean_pool,
    "siamese": siamese_pool,
    "pair": mean_pool,
}
"""Poolings over whole sequences, given hidden states, document ids, and the reading direction.

That of ``pair`` only summarises what the head reads."""

NUM_POOLED_VECTORS: dict[HeadPooling, int] = {"last-max-mean": 3, "siamese": 4}
"""Number of concatenated vectors, for poolings that concatenate several."""
