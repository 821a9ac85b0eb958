"""Speed of a causal model with memory, against recomputing a window for every token.

Both attend equally far back. With memory, consecutive segments share hidden states; without it,
every position needs a window and only its last hidden state is used (Dai et al. 2019, section 4.3
and table 9). Windows are computed in batches.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor

from bertwright.models.model import Model
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.mask import CausalVisibility, Visibility
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe
from bertwright.runtime.process import configure_process

RECIPE, VOCAB_SIZE = "transformer-xl-mini", 8192

SEGMENT_LENGTH, BATCH_SIZE, NUM_WINDOWS = 128, 4, 8
"""Tokens of a segment, segments of a batch, and windows of a batch."""

COLUMNS = {
    "length": "attention length",
    "microseconds_with_memory": "µs per token with memory",
    "microseconds_recomputed": "µs per token recomputed",
    "speedup": "speed-up",
    "difference": "largest difference from one banded pass",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]


class SegmentWindow(Visibility):
    """Causal attention within a segment and to the memory before it."""

    kind: Literal["stretch"] = "stretch"
    segment_length: int
    memory_length: int

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        first = query.index // self.segment_length * self.segment_length - self.memory_length
        return (key.index <= query.index) & (key.index >= first)


@torch.inference_mode()
def compare(lengths: list[int], num_rounds: int, log: Log) -> list[dict[str, Any]]:
    """Return a row per attention length, for a model of four blocks of width 256."""
    configure_process()
    recipe = Recipe.load(RECIPE, "compile=false", "precision=float32")
    model = Model.build(recipe, VOCAB_SIZE).eval()
    return [_compare(model, length, num_rounds, log) for length in lengths]


def _compare(model: Model, memory_length: int, num_rounds: int, log: Log) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    size = (BATCH_SIZE, memory_length + 2 * SEGMENT_LENGTH)
    text = torch.randint(5, VOCAB_SIZE, size, generator=generator)
    windows = text[:1, : memory_length + NUM_WINDOWS].unfold(1, memory_length + 1, 1)[0]
    _, memory = _read_with_memory(model, text[:, :memory_length], memory_length)
    segment = text[:, :SEGMENT_LENGTH]
    with_memory: list[float] = []
    recomputed: list[float] = []
    for number in range(num_rounds + 1):
        seconds = _time_call(
            lambda: model.encoder(segment, visibility=CausalVisibility(), memory=memory)
        )
        with_memory.append(seconds / (BATCH_SIZE * SEGMENT_LENGTH))
        recomputed.append(
            _time_call(lambda: model.encoder(windows, visibility=CausalVisibility())) / NUM_WINDOWS
        )
        if number:
            log(
                f"{memory_length}: round {number} of {num_rounds}: "
                f"{with_memory[-1] * 1e6:.0f} µs with memory, {recomputed[-1] * 1e6:.0f} µs without"
            )
    hidden_states, _ = _read_with_memory(model, text, memory_length)
    expected = model.encoder(
        text, visibility=SegmentWindow(segment_length=SEGMENT_LENGTH, memory_length=memory_length)
    )
    # The first round warms up.
    ratios = [b / a for a, b in zip(with_memory[1:], recomputed[1:], strict=True)]
    return {
        "length": memory_length,
        "microseconds_with_memory": 1e6 * median(with_memory[1:]),
        "microseconds_recomputed": 1e6 * median(recomputed[1:]),
        "speedup": median(ratios),
        "difference": float((hidden_states - expected).abs().max()),
        "rounds": num_rounds,
    }


def _read_with_memory(model: Model, token_ids: Tensor, memory_length: int) -> tuple[Tensor, Memory]:
    """Return the hidden states of a text read in segments, and the memory at its end."""
    memory = Memory.empty(memory_length, token_ids)
    hidden_states: list[Tensor] = []
    for segment in token_ids.split(SEGMENT_LENGTH, dim=1):
        hidden_states.append(model.encoder(segment, visibility=CausalVisibility(), memory=memory))
        memory = memory.next_memory(TokenInfo.from_token_ids(segment))
    return torch.cat(hidden_states, dim=1), memory


def _time_call(function: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
