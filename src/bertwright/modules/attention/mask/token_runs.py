"""Runs of tokens that a recurrent mixer reads without interruption.

A new run starts at each token that may not attend to the token before it. So in either direction a
run does not cross padding or document boundaries.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.modules.attention.mask import AttentionMask, ScanDirection


@dataclass(frozen=True, eq=False)
class TokenRuns:
    """An arrangement of the tokens of a batch (B, L) in runs (R, T), each in reading order.

    ``token_indices`` (N,) int64 are indices into the flattened batch; the n-th token is at
    ``offsets[n]`` of run ``run_ids[n]``. ``lengths`` (R,) and ``sequence_ids`` (R,) describe the
    runs. ``is_continued`` (R,) bool marks runs that continue from memory. ``last_runs`` (B,) is the
    last run of each sequence. ``whole_direction`` is set if every sequence is one run, so that no
    token needs to be moved.
    """

    token_indices: Tensor
    run_ids: Tensor
    offsets: Tensor
    lengths: Tensor
    sequence_ids: Tensor
    is_continued: Tensor
    last_runs: Tensor
    whole_direction: ScanDirection | None

    def gather(self, x: Tensor) -> Tensor:
        """Arrange x (B, L, D) in runs (R, T, D), padded with 0."""
        if self.whole_direction is not None:
            return x if self.whole_direction == "forward" else x.flip(1)
        runs = x.new_zeros(len(self.lengths), int(self.lengths.max()), x.shape[2])
        return runs.index_put((self.run_ids, self.offsets), x.flatten(0, 1)[self.token_indices])

    def scatter(self, x: Tensor, like: Tensor) -> Tensor:
        """Return values x of runs (R, T, H) as (B, L, H), 0 elsewhere; ``like`` is (B, L, D)."""
        if self.whole_direction is not None:
            return x if self.whole_direction == "forward" else x.flip(1)
        flat = x.new_zeros(like.shape[0] * like.shape[1], x.shape[2])
        return flat.index_put((self.token_indices,), x[self.run_ids, self.offsets]).view(
            *like.shape[:2], x.shape[2]
        )


def find_token_runs(
    attention_mask: AttentionMask, direction: ScanDirection, token_ids: Tensor
) -> TokenRuns:
    """Return the runs of a batch of token ids (B, L) under an attention mask.

    In reading order, a token continues the run of the nearest real token before it if it may attend
    to that token; otherwise it starts a new run. Memory comes before the first token that is read.
    """
    batch, length = token_ids.shape
    is_real = torch.ones(batch, length, dtype=torch.bool, device=token_ids.device)
    allowed = attention_mask.allowed
    memory_length = 0 if allowed is None else allowed.shape[-1] - length
    if attention_mask.is_real is not None:
        is_real = attention_mask.is_real[:, memory_length:].expand(batch, -1)
    previous = _previous_tokens(is_real, direction)
    inside = (previous >= 0) & (previous < length)
    is_connected = (inside | bool(memory_length)) & is_real
    if attention_mask.layout == "causal" and direction == "backward":
        is_connected = torch.zeros_like(is_connected)
    if allowed is not None:
        index = torch.where(inside, previous + memory_length, max(memory_length - 1, 0))
        allowed = allowed[:, 0].expand(batch, -1, -1)
        is_connected = is_connected & allowed.gather(2, index[..., None]).squeeze(2)
    is_start, is_continued = is_real & ~(is_connected & inside), is_connected & ~inside
    return _build_runs(is_real, is_start, is_continued, direction)


def _previous_tokens(is_real: Tensor, direction: ScanDirection) -> Tensor:
    """Return the index of the real token before each token, (B, L); -1 or L if there is none."""
    length = is_real.shape[1]
    index = torch.arange(length, device=is_real.device)
    if direction == "forward":
        nearest = torch.where(is_real, index, -1).cummax(1).values
        return torch.nn.functional.pad(nearest[:, :-1], (1, 0), value=-1)
    nearest = torch.where(is_real, index, length).flip(1).cummin(1).values.flip(1)
    return torch.nn.functional.pad(nearest[:, 1:], (0, 1), value=length)


def _build_runs(
    is_real: Tensor, is_start: Tensor, is_continued: Tensor, direction: ScanDirection
) -> TokenRuns:
    batch, length = is_real.shape
    indices = torch.arange(batch * length, device=is_real.device).view(batch, length)
    indices = indices[is_real] if direction == "forward" else indices.flip(1)[is_real.flip(1)]
    starts_run = is_start.flatten()[indices]
    run_ids = starts_run.cumsum(0) - 1
    starts = starts_run.nonzero().squeeze(1)
    end = torch.tensor([len(indices)], device=is_real.device)
    lengths = torch.diff(torch.cat((starts, end)))
    offsets = torch.arange(len(indices), device=is_real.device) - starts[run_ids]
    sequence_ids = indices[starts] // length
    run_index = torch.arange(len(sequence_ids), device=is_real.device)
    last_runs = sequence_ids.new_zeros(batch).scatter_reduce(0, sequence_ids, run_index, "amax")
    continued = is_continued.flatten()[indices[starts]]
    is_whole = len(sequence_ids) == batch and len(indices) == is_real.numel()
    whole = direction if is_whole else None
    return TokenRuns(indices, run_ids, offsets, lengths, sequence_ids, continued, last_runs, whole)
