"""How long an encoder takes of which heads and units are really gone, against the arithmetic that
is left of it."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.compression.surgery import Kept, cut_model
from bertwright.interop.loading import load
from bertwright.machine.process import tune_process
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.randomness import key, uniform

COLUMNS = {
    "gone": "heads and units gone",
    "texts": "texts",
    "pieces": "pieces of each",
    "milliseconds": "ms",
    "left": "of the time",
    "share": "of the products",
    "proportion": "time to products",
    "difference": "greatest difference to closed gates",
}
"""What a document shows, by key."""

PIECES = 64

Rows = list[list[int]]


@torch.inference_mode()
def compare(
    folder: Path, gone: Sequence[float], texts: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    """A line for every share that is gone and every number of texts of 64 pieces, all in float32
    and in turns with the whole. Which heads and units go is drawn: time knows no importance."""
    tune_process()
    whole = load(folder, "float32")
    found: list[dict[str, Any]] = []
    for share in gone:
        kept = _kept(whole.model, share)
        small = TextModel(cut_model(whole.model, kept), whole.tokenizer, "float32")
        products = _products(small.model) / _products(whole.model)
        for number in texts:
            rows = _rows(whole, number)
            seconds = _in_turns((whole, small), rows, rounds)
            left = median(b / a for a, b in zip(*seconds, strict=True))
            found.append(
                {
                    "gone": share,
                    "texts": number,
                    "pieces": PIECES,
                    "milliseconds": 1000 * median(seconds[1]),
                    "left": left,
                    "share": products,
                    "proportion": left / products,
                    "difference": _difference(whole.model, small.model, kept, rows),
                }
            )
    return found


def _kept(model: Model, gone: float) -> Kept:
    """What stays of every block."""
    sizes = {"heads": [model.encoder.heads] * len(model.encoder.blocks), "units": _units(model)}
    return Kept(
        **{
            name: [
                np.argsort(uniform(key(0, name), block, np.arange(size)))[
                    round(gone * size) :
                ].tolist()
                for block, size in enumerate(own)
            ]
            for name, own in sizes.items()
        }
    )


def _units(model: Model) -> list[int]:
    downs = (block.get_submodule("sublayers.feed_forward.down") for block in model.encoder.blocks)
    return [down.in_features for down in downs if isinstance(down, nn.Linear)]


def _products(model: Model) -> int:
    """Multiplications for a piece: those with matrices, and of attention."""
    matrices = [m.weight for m in model.encoder.blocks.modules() if isinstance(m, nn.Linear)]
    inner = [
        block.get_submodule("sublayers.attention.output").get_parameter("weight").shape[1]
        for block in model.encoder.blocks
    ]
    return sum(weight.numel() for weight in matrices) + 2 * PIECES * sum(inner)


def _rows(model: TextModel, number: int) -> Rows:
    drawn = uniform(key(0, "pieces"), np.arange(number)[:, None], np.arange(PIECES)[None])
    return np.floor(drawn * model.tokenizer.size).astype(int).tolist()


def _in_turns(
    models: tuple[TextModel, TextModel], rows: Rows, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of both, by round; the first round warms up."""
    found = list[float](), list[float]()
    for _ in range(rounds + 1):
        for model, seconds in zip(models, found, strict=True):
            began = time.perf_counter()
            model.embed_rows(rows)
            seconds.append(time.perf_counter() - began)
    return found[0][1:], found[1][1:]


def _difference(whole: Model, small: Model, kept: Kept, rows: Rows) -> float:
    """Between the states of the small model and those of the whole with gates closed."""
    pieces, gates = torch.tensor(rows[:1]), dict[str, Tensor]()
    assert kept.heads is not None
    assert kept.units is not None
    for block, (heads, units) in enumerate(zip(kept.heads, kept.units, strict=True)):
        opened = torch.zeros(whole.encoder.heads, 1, 1).index_fill(0, torch.tensor(heads), 1)
        gates[f"blocks.{block}.attention.context"] = opened
        width = _units(whole)[block]
        opened = torch.zeros(width).index_fill(0, torch.tensor(units), 1)
        gates[f"blocks.{block}.feed_forward.activation"] = opened
    with whole.encoder.gate(gates):
        wanted = whole.encoder(pieces)
    return float((small.encoder(pieces) - wanted).abs().max())
