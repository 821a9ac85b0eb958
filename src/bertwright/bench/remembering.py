"""How fast a causal model reads a text with memory, against windows that are computed anew.

Both see as far back. With memory, rows go on from each other; without, every place needs a window
of its own, of which only the last state is used (Dai et al. 2019, section 4.3 and table 9). Windows
are computed in batches.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor

from bertwright.encoder.memory import Memory
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Causal, Visibility
from bertwright.machine.process import tune_process
from bertwright.model.model import Model
from bertwright.recipes import Recipe

RECIPE, VOCABULARY_SIZE = "transformer-xl-mini", 8192

ROW, ROWS, WINDOWS = 128, 4, 8
"""Places of a row that is read with memory, how many are read at once, and windows in a batch."""

COLUMNS = {
    "length": "attention length",
    "microseconds_with_memory": "µs a token with memory",
    "microseconds_anew": "µs a token computed anew",
    "times": "times as fast",
    "difference": "greatest difference to one banded pass",
}
"""What a document shows, by key."""

Say = Callable[[str], None]


class Stretch(Visibility):
    """What a place sees that is read in rows of ``row`` places with so much memory."""

    kind: Literal["stretch"] = "stretch"
    row: int
    memory: int

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        first = query.place // self.row * self.row - self.memory
        return (key.place <= query.place) & (key.place >= first)


@torch.inference_mode()
def compare(lengths: list[int], rounds: int, say: Say) -> list[dict[str, Any]]:
    """One row of figures per attention length, of a model of four blocks of width 256."""
    tune_process()
    recipe = Recipe.load(RECIPE, "compile=false", "precision=float32")
    model = Model.build(recipe, VOCABULARY_SIZE).eval()
    return [_compare(model, length, rounds, say) for length in lengths]


def _compare(model: Model, length: int, rounds: int, say: Say) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    size = (ROWS, length + 2 * ROW)
    text = torch.randint(5, VOCABULARY_SIZE, size, generator=generator)
    windows = text[:1, : length + WINDOWS].unfold(1, length + 1, 1)[0]
    _, memory = _read(model, text[:, :length], length)
    with_memory: list[float] = []
    anew: list[float] = []
    for number in range(rounds + 1):
        seconds = _seconds(lambda: model.encoder(text[:, :ROW], rule=Causal(), memory=memory))
        with_memory.append(seconds / (ROWS * ROW))
        anew.append(_seconds(lambda: model.encoder(windows, rule=Causal())) / WINDOWS)
        if number:
            both = f"{with_memory[-1] * 1e6:.0f} µs with memory, {anew[-1] * 1e6:.0f} µs anew"
            say(f"{length}: round {number} of {rounds}: {both}")
    found, _ = _read(model, text, length)
    whole = model.encoder(text, rule=Stretch(row=ROW, memory=length))
    # The first round warms up.
    ratios = [b / a for a, b in zip(with_memory[1:], anew[1:], strict=True)]
    return {
        "length": length,
        "microseconds_with_memory": 1e6 * median(with_memory[1:]),
        "microseconds_anew": 1e6 * median(anew[1:]),
        "times": median(ratios),
        "difference": float((found - whole).abs().max()),
        "rounds": rounds,
    }


def _read(model: Model, text: Tensor, length: int) -> tuple[Tensor, Memory]:
    """The states of a text that is read in rows with memory, and what is remembered at its end."""
    memory = Memory.empty(length, text)
    found: list[Tensor] = []
    for part in text.split(ROW, dim=1):
        found.append(model.encoder(part, rule=Causal(), memory=memory))
        memory = memory.following(Coordinates.plain(part))
    return torch.cat(found, dim=1), memory


def _seconds(run: Callable[[], Tensor]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
