"""Time of attention by sequence length, for every token mixer.

Times the mixer of one block with its projections, forward and backward, on the same number of
tokens at every length. The mixers run in interleaved rounds; the median round is reported.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from bertwright.modules.attention.mask import build_attention_mask
from bertwright.modules.attention.mask.windows import visibility_at_block
from bertwright.modules.context import AttentionContext, BlockContext
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe
from bertwright.runtime.process import default_device, synchronise

MIXER_RECIPES: Mapping[str, tuple[str, ...]] = {
    "full": ("bert-mini",),
    "window": ("bert-mini", "encoder.visibility={kind: window, size: 64}"),
    "longformer": ("longformer-mini",),
    "bigbird": ("bigbird-mini",),
    "reformer": ("reformer-mini", "encoder.visibility=bidirectional"),
    "performer": ("performer-mini",),
}
"""Recipes of the mixers: width 256, 4 heads."""

COLUMNS = {
    "length": "length",
    "full": "full attention, µs of all cores per token",
    "window": "window of 64 tokens to each side",
    "longformer": "Longformer",
    "bigbird": "BigBird",
    "reformer": "Reformer",
    "performer": "Performer",
    "window_gain": "speed-up over full: window",
    "longformer_gain": "Longformer",
    "bigbird_gain": "BigBird",
    "reformer_gain": "Reformer",
    "performer_gain": "Performer",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]
TimedStep = Callable[[], float]


def compare(
    lengths: Sequence[int], batch_tokens: int, num_rounds: int, log: Log
) -> list[dict[str, Any]]:
    """Return a row per length: microseconds per token of every mixer, and its speed-up over full
    attention."""
    device = default_device().type
    rows: list[dict[str, Any]] = []
    for length in lengths:
        batch = max(1, batch_tokens // length)
        steps = {
            name: _mixer_step(recipe, batch, length, device)
            for name, recipe in MIXER_RECIPES.items()
        }
        for step in steps.values():
            step()
        times = {name: list[float]() for name in steps}
        for _ in range(num_rounds):
            for name, step in steps.items():
                times[name].append(1e6 * step() / (batch * length))
        row: dict[str, Any] = {"length": length, **{n: median(t) for n, t in times.items()}}
        row |= {f"{name}_gain": _speedup(times, name) for name in steps if name != "full"}
        log(f"{length}: {', '.join(f'{name} {row[name]:.3g}' for name in steps)} us per token")
        rows.append(row)
    return rows


def _mixer_step(
    recipe: tuple[str, ...], batch_size: int, sequence_length: int, device: str
) -> TimedStep:
    """Return a function that runs a forward and backward pass and returns its seconds."""
    encoder = Recipe.load(*recipe).encoder
    torch.manual_seed(0)
    mixer = encoder.mixer.build(encoder.width, encoder.positions, encoder.norm).to(device)
    x = torch.randn(batch_size, sequence_length, encoder.width, device=device, requires_grad=True)
    token_info = TokenInfo(torch.arange(sequence_length, device=device)[None])
    visibility = visibility_at_block(0, encoder.visibility, encoder.sliding_window)
    context = AttentionContext(
        build_attention_mask(
            visibility, token_info, None, encoder.mixer.tiling, encoder.mixer.needs_global_tokens
        )
    )

    def step() -> float:
        start = _read_clock(device)
        output: Tensor = mixer(x, BlockContext(context))
        output.backward(torch.ones_like(output))
        return _read_clock(device) - start

    return step


def _read_clock(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    synchronise(device)
    return time.perf_counter()


def _speedup(times: Mapping[str, Sequence[float]], name: str) -> float:
    """Return the median over rounds of the time of full attention divided by that of a mixer."""
    return median(full / mixer for full, mixer in zip(times["full"], times[name], strict=True))
