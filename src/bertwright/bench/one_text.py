"""How long one short text takes, from an exported folder in 8 bits and from onnxruntime alone.

What is called raw is a session that is fed the same pieces, tokenised beforehand, and whose states
are averaged: whatever a library adds to that is what it costs.
"""

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bertwright.bench.embedding_peers import INPUTS, onnxruntime_in_8_bits
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.about import INT8
from bertwright.interop.onnx.writing import export_onnx
from bertwright.machine.cores import num_cores
from bertwright.model.reading import single
from bertwright.model.text_model import TextModel

COLUMNS = {
    "contestant": "contestant",
    "pieces": "pieces",
    "milliseconds": "ms",
    "against_raw": "of the time of the raw graph",
}
"""What a document shows, by key."""

RAW, STOCK, OURS = "onnxruntime, our graph, raw", "onnxruntime, stock graph", "bertwright"

WORDS = "the keeper lights the lamp again and then the ships come home at last"

CALLS = 50
"""Of a turn."""


def compare(folder: Path, num_pieces: int, rounds: int) -> list[dict[str, Any]]:
    """A line for every contestant, of a text of so many pieces, special ones included.

    Errors: UserError where no text of so few pieces can be made.
    """
    exact = load(folder, "float32")
    text, row = _text(exact, num_pieces)
    with TemporaryDirectory() as work:
        graph = Path(work) / "graph"
        export_onnx(exact, graph, int8=True)
        ours, raw = load(graph), _raw(graph / INT8, row)
        stock = onnxruntime_in_8_bits(folder)
        contestants: Mapping[str, Callable[[], object]] = {
            RAW: raw,
            STOCK: lambda: stock([text]),
            OURS: lambda: ours.embed([text], normalise=True),
        }
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(1 + rounds):
            for name, embed in contestants.items():
                seconds[name].append(_seconds(embed))
    # The first round warms up.
    own = {name: laps[1:] for name, laps in seconds.items()}
    return [
        {
            "contestant": name,
            "pieces": num_pieces,
            "milliseconds": 1000 * median(laps),
            "against_raw": median(a / b for a, b in zip(laps, own[RAW], strict=True)),
        }
        for name, laps in own.items()
    ]


def _seconds(embed: Callable[[], object]) -> float:
    """Of a call, the median of a turn: threads of onnxruntime that wait for work take the cores
    from whoever comes next, for the first of its calls."""
    marks = [time.perf_counter()]
    for _ in range(CALLS):
        embed()
        marks.append(time.perf_counter())
    return median(after - before for before, after in pairwise(marks))


def _text(model: TextModel, num_pieces: int) -> tuple[str, list[int]]:
    """The first words that are so many pieces, and these."""
    words = WORDS.split()
    for number in range(1, len(words) + 1):
        text = " ".join(words[:number])
        row = single(model.pieces([text])[0], model.tokenizer.specials, None)
        if len(row) == num_pieces:
            return text, row
    raise UserError(f"no text of {num_pieces} pieces is at hand: ask for one of 3 to 16")


def _raw(graph: Path, row: list[int]) -> Callable[[], object]:
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores()
    session: Any = onnxruntime.InferenceSession(
        str(graph), options, providers=["CPUExecutionProvider"]
    )
    pieces = np.array([row], np.int64)
    columns = (pieces, np.ones_like(pieces), np.zeros_like(pieces))
    given = dict(zip(INPUTS, columns, strict=True))
    return lambda: session.run(None, given)[0].mean(1)
