"""Latency of one short text: an exported int8 folder, against onnxruntime alone.

The raw graph is a session that gets the tokens and whose hidden states are averaged; the rest is
the overhead of a library.
"""

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.embedding.peers import INPUT_NAMES, load_onnxruntime_int8
from bertwright.core.errors import UserError
from bertwright.core.hardware import num_cores
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.manifest import INT8_GRAPH_FILE
from bertwright.models.text_batches import add_special_tokens
from bertwright.models.text_model import TextModel

COLUMNS = {
    "library": "library",
    "tokens": "tokens",
    "milliseconds": "ms",
    "against_raw": "time relative to the raw graph",
}
"""Columns of the table, by key."""

RAW_GRAPH, STOCK_GRAPH, BERTWRIGHT = (
    "onnxruntime, our graph, raw",
    "onnxruntime, stock graph",
    "bertwright",
)

WORDS = "the keeper lights the lamp again and then the ships come home at last"

CALLS_PER_ROUND = 50
"""Consecutive timed calls."""


def compare(folder: Path, num_tokens: int, num_rounds: int) -> list[dict[str, Any]]:
    """Return a row for every library, for a text of ``num_tokens`` with special tokens.

    Errors: UserError without a text of this length.
    """
    exact = load(folder, "float32")
    text, token_ids = _find_text(exact, num_tokens)
    with TemporaryDirectory() as work:
        graph = Path(work) / "graph"
        export_onnx(exact, graph, int8=True)
        ours, raw = load(graph), _raw_graph(graph / INT8_GRAPH_FILE, token_ids)
        stock = load_onnxruntime_int8(folder)
        libraries: Mapping[str, Callable[[], object]] = {
            RAW_GRAPH: raw,
            STOCK_GRAPH: lambda: stock([text]),
            BERTWRIGHT: lambda: ours.embed([text], normalise=True),
        }
        seconds: dict[str, list[float]] = {name: [] for name in libraries}
        for _ in range(1 + num_rounds):
            for name, embed in libraries.items():
                seconds[name].append(_seconds_per_call(embed))
    # The first round warms up.
    timed = {name: times[1:] for name, times in seconds.items()}
    return [
        {
            "library": name,
            "tokens": num_tokens,
            "milliseconds": 1000 * median(times),
            "against_raw": median(a / b for a, b in zip(times, timed[RAW_GRAPH], strict=True)),
        }
        for name, times in timed.items()
    ]


def _seconds_per_call(embed: Callable[[], object]) -> float:
    """Return the median over consecutive calls.

    Idle threads of onnxruntime spin and slow the first calls of the next library.
    """
    marks = [time.perf_counter()]
    for _ in range(CALLS_PER_ROUND):
        embed()
        marks.append(time.perf_counter())
    return median(after - before for before, after in pairwise(marks))


def _find_text(model: TextModel, num_tokens: int) -> tuple[str, list[int]]:
    """Return the first words that make ``num_tokens`` tokens, and their ids."""
    words = WORDS.split()
    for number in range(1, len(words) + 1):
        text = " ".join(words[:number])
        special_tokens = model.tokenizer.special_tokens
        token_ids = add_special_tokens(
            model.tokenize([text])[0], special_tokens, None, model.model.recipe.assembly
        )
        if len(token_ids) == num_tokens:
            return text, token_ids
    raise UserError(f"there is no text of {num_tokens} tokens: choose 3 to 16")


def _raw_graph(graph_file: Path, token_ids: list[int]) -> Callable[[], object]:
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores()
    session: Any = onnxruntime.InferenceSession(
        str(graph_file), options, providers=["CPUExecutionProvider"]
    )
    ids = np.array([token_ids], np.int64)
    inputs = dict(zip(INPUT_NAMES, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
    return lambda: session.run(None, inputs)[0].mean(1)
