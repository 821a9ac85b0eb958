"""The ONNX graphs of a folder: size, difference from float32, and latency for one sequence."""

from pathlib import Path
from typing import Any

import numpy as np

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.graph.inputs import LAST_HIDDEN_STATE, LOGITS
from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE, OnnxManifest
from bertwright.interop.onnx.model import OnnxModel, load_onnx
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.timing.graph_worker import graph_milliseconds

GRAPH_COLUMNS = {
    "graph": "graph",
    "bytes": "bytes",
    "max_difference": "greatest difference to float32",
    "cosine": "mean cosine of vectors",
    "ms_at_16": "ms at 1x16",
    "ms_at_128": "ms at 1x128",
}
"""Column titles by key."""

TIMED_LENGTHS = (16, 128)
"""Lengths of the timed sequence."""

SAMPLE_TEXTS = (
    "A short one.",
    "Is it raining? No: it stopped an hour ago.",
    "The weather was fine, and so everybody went down to the harbour to see the ships.",
    "It costs 12.50, they said; nobody believed it!",
    "Of all the books that she had read that year, only one was worth the evening it took.",
    "Bring the ladder round to the back of the house, then lean it against the wall.",
)

MAX_ITEMS = 6


def measure_graphs(folder: Path) -> list[dict[str, Any]]:
    """Measure the graphs of an ONNX folder; return a row each, with keys of ``GRAPH_COLUMNS``."""
    manifest, reference = OnnxManifest.read(folder), load_onnx(folder, "float32")
    names = [name for name in (GRAPH_FILE, INT8_GRAPH_FILE) if name in manifest.file_sha256]
    output = LOGITS if isinstance(reference, FineTunedModel) else LAST_HIDDEN_STATE
    lines: list[dict[str, Any]] = [
        {"graph": name, "bytes": _num_bytes(folder, name)} for name in names
    ]
    if INT8_GRAPH_FILE in names:
        lines[1] |= _compare_with_reference(load_onnx(folder), reference, output)
    max_length = reference.model.encoder.max_length or max(TIMED_LENGTHS)
    for length in (length for length in TIMED_LENGTHS if length <= max_length):
        times = graph_milliseconds(
            [folder / name for name in names], manifest.input_names, output, length
        )
        for line, milliseconds in zip(lines, times, strict=True):
            line[f"ms_at_{length}"] = milliseconds
    return lines


def _num_bytes(folder: Path, graph_name: str) -> int:
    """Return the size of a graph in bytes, with external data files."""
    return sum(file.stat().st_size for file in folder.glob(f"{graph_name}*"))


def _sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Return sample texts for a tokenizer; for a tokenizer of items, sequences of items."""
    if tokenizer.kind != "items":
        return list(SAMPLE_TEXTS)
    items = [n for n in tokenizer.ids.tolist() if n not in tokenizer.special_tokens.all][:MAX_ITEMS]
    return [" ".join(map(tokenizer.id_to_token, items[: n + 1])) for n in range(len(items))]


def _compare_with_reference(
    model: OnnxModel, reference: OnnxModel, output_name: str
) -> dict[str, float]:
    """Return the maximum difference of an output, and the mean cosine of embeddings."""
    texts = _sample_texts(reference.tokenizer)
    values, expected = (m.outputs_for_texts(output_name, texts) for m in (model, reference))
    difference = max(float(np.abs(a - b).max()) for a, b in zip(values, expected, strict=True))
    vectors, others = (m.embed(texts, normalise=True) for m in (model, reference))
    return {"max_difference": difference, "cosine": float((vectors * others).sum(1).mean())}
