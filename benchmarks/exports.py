"""What other runtimes compute with the exports of an encoder, against the encoder itself."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bertwright.core.config import InferencePrecision
from bertwright.core.optional_dependencies import is_installed
from bertwright.interop.gguf import GGUF_FILE
from bertwright.interop.gguf.exporter import GgufType, export_gguf
from bertwright.interop.gguf.verification import LlamaEncoder
from bertwright.interop.graph.inputs import SENTENCE_EMBEDDING
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.int8_loss import SAMPLE_TEXTS
from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE
from bertwright.interop.onnx.model import load_onnx
from bertwright.models.text_model import FloatMatrix, TextModel

COLUMNS = {
    "runtime": "runtime",
    "weights": "weights",
    "megabytes": "MB",
    "texts": "texts",
    "max_difference": "largest difference",
    "cosine": "mean cosine",
    "min_cosine": "lowest cosine",
}
"""Columns of the table, by key."""

JAVASCRIPT = Path(__file__).parents[1] / "tests" / "parity" / "javascript"
"""The script that runs transformers.js, and its packages."""

GGUF_TYPES: tuple[GgufType, ...] = ("f32", "f16", "q8_0")


def compare(
    folder: Path, texts: Sequence[str] = SAMPLE_TEXTS, log: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Return a row for every runtime that is installed and every type of weights.

    The vectors of all runtimes are compared with those of ``embed`` in float32.
    """
    model = load(folder, "float32")
    expected = model.embed(texts, normalise=model.model.recipe.vectors.normalise)
    results: list[dict[str, Any]] = []
    with TemporaryDirectory() as work:
        export_onnx(model, Path(work) / "graph", int8=True)
        runtimes = [_onnxruntime(Path(work) / "graph", texts)]
        if (JAVASCRIPT / "node_modules").is_dir() and shutil.which("node"):
            runtimes.append(_transformers_js(Path(work), texts))
        else:
            log("transformers.js is left out: run npm ci --prefix tests/parity/javascript")
        if is_installed("llama_cpp"):
            runtimes.append(_llama_cpp(model, Path(work), texts))
        else:
            log("llama.cpp is left out: run pip install llama-cpp-python")
        for runtime in runtimes:
            for name, weights, file, vectors in runtime:
                row: dict[str, Any] = {"runtime": name, "weights": weights, "texts": len(texts)}
                row["megabytes"] = file.stat().st_size / 1e6
                results.append(row | _difference(expected, vectors))
    return results


Vectors = tuple[str, str, Path, FloatMatrix]
"""Runtime, type of weights, file and vectors of all texts."""


def _difference(expected: FloatMatrix, vectors: FloatMatrix) -> dict[str, float]:
    norms = np.linalg.norm(expected, axis=1) * np.linalg.norm(vectors, axis=1)
    cosines = (expected * vectors).sum(1) / norms
    return {
        "max_difference": float(np.abs(expected - vectors).max()),
        "cosine": float(cosines.mean()),
        "min_cosine": float(cosines.min()),
    }


def _onnxruntime(folder: Path, texts: Sequence[str]) -> Iterator[Vectors]:
    files: dict[InferencePrecision, str] = {"float32": GRAPH_FILE, "int8": INT8_GRAPH_FILE}
    for precision, file in files.items():
        graph = load_onnx(folder, precision)
        vectors = np.stack(graph.outputs_for_texts(SENTENCE_EMBEDDING, texts))
        yield "onnxruntime", precision, folder / file, vectors


def _transformers_js(work: Path, texts: Sequence[str]) -> Iterator[Vectors]:
    files = {"fp32": GRAPH_FILE, "q8": INT8_GRAPH_FILE}
    jobs = [
        {
            "name": dtype,
            "model": "graph",
            "task": "feature-extraction",
            "dtype": dtype,
            "inputs": [list(texts)],
            "options": {},
            "raw": True,
        }
        for dtype in files
    ]
    process = subprocess.run(
        ["node", str(JAVASCRIPT / "run_node.mjs")],
        input=json.dumps({"folder": str(work), "jobs": jobs}),
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(process.stdout)
    for dtype, file in files.items():
        vectors = np.array(results[dtype][SENTENCE_EMBEDDING], np.float32)
        yield "transformers.js", dtype, work / "graph" / file, vectors


def _llama_cpp(model: TextModel, work: Path, texts: Sequence[str]) -> Iterator[Vectors]:
    sequences = model.encode_ids(texts)
    width, scaled = model.model.recipe.encoder.width, model.model.recipe.vectors.normalise
    for weights in GGUF_TYPES:
        export_gguf(model, work / weights, weights)
        file = work / weights / GGUF_FILE
        llama = LlamaEncoder(file, max(map(len, sequences)))
        vectors = np.stack([llama.outputs(token_ids, width) for token_ids in sequences])
        llama.close()
        if scaled:  # by its caller
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        yield "llama.cpp", weights, file, vectors
