"""How the time of attention grows with the length of a row, mixer by mixer.

Each contestant is the mixer of one block, with its projections, forward and backward on the same
number of tokens at every length. All take turns in one process; the median turn is reported.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from bertwright.encoder.locality import rule_at
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.visibility import view
from bertwright.machine.process import synchronise, usual_device
from bertwright.recipes import Recipe

CONTESTANTS: Mapping[str, tuple[str, ...]] = {
    "full": ("bert-mini",),
    "window": ("bert-mini", "encoder.visibility={kind: window, size: 64}"),
    "longformer": ("longformer-mini",),
    "bigbird": ("bigbird-mini",),
    "reformer": ("reformer-mini", "encoder.visibility=bidirectional"),
    "performer": ("performer-mini",),
}
"""The recipes whose mixers take part: 256 wide, 4 heads."""

COLUMNS = {
    "length": "length",
    "full": "full, µs of all cores a token",
    "window": "window of 64 to each side",
    "longformer": "Longformer",
    "bigbird": "BigBird",
    "reformer": "Reformer",
    "performer": "Performer",
    "window_gain": "times full: window",
    "longformer_gain": "Longformer",
    "bigbird_gain": "BigBird",
    "reformer_gain": "Reformer",
    "performer_gain": "Performer",
}
"""What a document shows, by key."""

Say = Callable[[str], None]
Turn = Callable[[], float]


def compare(
    lengths: Sequence[int], batch_tokens: int, rounds: int, say: Say
) -> list[dict[str, Any]]:
    """One row of figures per length: microseconds a token of every contestant, and how many times
    faster than attention to everything it is."""
    device = usual_device().type
    rows: list[dict[str, Any]] = []
    for length in lengths:
        batch = max(1, batch_tokens // length)
        turns = {name: _turn(recipe, batch, length, device) for name, recipe in CONTESTANTS.items()}
        for turn in turns.values():
            turn()
        laps = {name: list[float]() for name in turns}
        for _ in range(rounds):
            for name, turn in turns.items():
                laps[name].append(1e6 * turn() / (batch * length))
        row: dict[str, Any] = {"length": length, **{n: median(own) for n, own in laps.items()}}
        row |= {f"{name}_gain": _gain(laps, name) for name in turns if name != "full"}
        say(f"{length}: {', '.join(f'{name} {row[name]:.3g}' for name in turns)} us a token")
        rows.append(row)
    return rows


def _turn(recipe: tuple[str, ...], batch: int, length: int, device: str) -> Turn:
    """Seconds of one forward and backward pass."""
    encoder = Recipe.load(*recipe).encoder
    torch.manual_seed(0)
    mixer = encoder.mixer.build(encoder.width, encoder.positions, encoder.norm).to(device)
    x = torch.randn(batch, length, encoder.width, device=device, requires_grad=True)
    rows = Coordinates(torch.arange(length, device=device)[None])
    rule = rule_at(0, encoder.visibility, encoder.local)
    around = Surroundings(view(rule, rows, None, encoder.mixer.tiling, encoder.mixer.asks_wide))

    def turn() -> float:
        began = _clock(device)
        found: Tensor = mixer(x, around)
        found.backward(torch.ones_like(found))
        return _clock(device) - began

    return turn


def _clock(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    synchronise(device)
    return time.perf_counter()


def _gain(laps: Mapping[str, Sequence[float]], name: str) -> float:
    """How many times longer attention to everything takes in the same round."""
    return median(full / own for full, own in zip(laps["full"], laps[name], strict=True))
