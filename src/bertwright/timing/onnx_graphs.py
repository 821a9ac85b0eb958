"""The ONNX graphs of a folder: size, difference from float32, and latency for one sequence."""

from pathlib import Path
from typing import Any

from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE, OnnxManifest
from bertwright.interop.onnx.model import load_onnx
from bertwright.timing.graph_worker import graph_milliseconds

INT8_LOSS_COLUMNS = {
    "max_difference": "greatest difference to float32",
    "cosine": "mean cosine of vectors",
    "min_cosine": "lowest cosine",
}

GRAPH_COLUMNS = {
    "graph": "graph",
    "bytes": "bytes",
    **INT8_LOSS_COLUMNS,
    "ms_at_16": "ms at 1x16",
    "ms_at_128": "ms at 1x128",
}
"""Column titles by key."""

TIMED_LENGTHS = (16, 128)
"""Lengths of the timed sequence."""


def measure_graphs(folder: Path) -> list[dict[str, Any]]:
    """Measure the graphs of an ONNX folder; return a row each, with keys of ``GRAPH_COLUMNS``."""
    manifest, reference = OnnxManifest.read(folder), load_onnx(folder, "float32")
    names = [name for name in (GRAPH_FILE, INT8_GRAPH_FILE) if name in manifest.file_sha256]
    lines: list[dict[str, Any]] = [
        {"graph": name, "bytes": _num_bytes(folder, name)} for name in names
    ]
    if manifest.int8_loss is not None:
        loss = manifest.int8_loss
        lines[1] |= {name: getattr(loss, name) for name in INT8_LOSS_COLUMNS}
    max_length = reference.model.encoder.max_length or max(TIMED_LENGTHS)
    for length in (length for length in TIMED_LENGTHS if length <= max_length):
        times = graph_milliseconds(
            [folder / name for name in names], manifest.input_names, reference.main_output, length
        )
        for line, milliseconds in zip(lines, times, strict=True):
            line[f"ms_at_{length}"] = milliseconds
    return lines


def _num_bytes(folder: Path, graph_name: str) -> int:
    """Return the size of a graph in bytes, with external data files."""
    return sum(file.stat().st_size for file in folder.glob(f"{graph_name}*"))
