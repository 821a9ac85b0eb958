"""What the graphs of a folder come to: bytes, how far from float32, milliseconds for one row."""

from pathlib import Path
from typing import Any

import numpy as np

from bertwright.interop.onnx.about import GRAPH, INT8, About
from bertwright.interop.onnx.inputs import ANSWERS, STATES
from bertwright.interop.onnx.reading import OnnxModel, load_onnx
from bertwright.interop.onnx.timing import milliseconds
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.text.tokenizers import Tokenizer

COLUMNS = {
    "graph": "graph",
    "bytes": "bytes",
    "max_difference": "greatest difference to float32",
    "cosine": "mean cosine of vectors",
    "ms_at_16": "ms at 1x16",
    "ms_at_128": "ms at 1x128",
}
"""What is shown of every graph, by key."""

LENGTHS = (16, 128)
"""Of the one row that is timed."""

TEXTS = (
    "A short one.",
    "Is it raining? No: it stopped an hour ago.",
    "The weather was fine, and so everybody went down to the harbour to see the ships.",
    "It costs 12.50, they said; nobody believed it!",
    "Of all the books that she had read that year, only one was worth the evening it took.",
    "Bring the ladder round to the back of the house, then lean it against the wall.",
)

MOST_ITEMS = 6


def measured(folder: Path) -> list[dict[str, Any]]:
    """A line for every graph of an ONNX folder, by the keys of ``COLUMNS``."""
    about, exact = About.read(folder), load_onnx(folder, "float32")
    names = [name for name in (GRAPH, INT8) if name in about.files]
    output = ANSWERS if isinstance(exact, FineTuned) else STATES
    lines: list[dict[str, Any]] = [{"graph": name, "bytes": _size(folder, name)} for name in names]
    if INT8 in names:
        lines[1] |= _apart(load_onnx(folder), exact, output)
    longest = exact.model.encoder.longest or max(LENGTHS)
    for length in (length for length in LENGTHS if length <= longest):
        times = milliseconds([folder / name for name in names], about.inputs, output, length)
        for line, found in zip(lines, times, strict=True):
            line[f"ms_at_{length}"] = found
    return lines


def _size(folder: Path, name: str) -> int:
    """Of a graph, with what lies in a file beside it where it is large."""
    return sum(file.stat().st_size for file in folder.glob(f"{name}*"))


def _texts(tokenizer: Tokenizer) -> list[str]:
    """Some that a model reads; where it knows nothing but items, some of those."""
    if tokenizer.kind != "items":
        return list(TEXTS)
    items = [n for n in tokenizer.ids.tolist() if n not in tokenizer.specials.all][:MOST_ITEMS]
    return [" ".join(map(tokenizer.piece, items[: n + 1])) for n in range(len(items))]


def _apart(model: OnnxModel, exact: OnnxModel, output: str) -> dict[str, float]:
    """The greatest difference of an output, and the mean cosine of vectors."""
    texts = _texts(exact.tokenizer)
    said, right = (each.said(output, texts) for each in (model, exact))
    difference = max(float(np.abs(a - b).max()) for a, b in zip(said, right, strict=True))
    ours, theirs = (each.embed(texts, normalise=True) for each in (model, exact))
    return {"max_difference": difference, "cosine": float((ours * theirs).sum(1).mean())}
