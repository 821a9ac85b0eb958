"""Predictions per second, against embeddings of the same texts: the cost of a head and of files.

Both process the same short texts in interleaved rounds in one process, from a file to a file.
"""

import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.embedding.compare import checkpoint_folder
from bertwright.core.rng import stream_key, uniform
from bertwright.interop.loading import load
from bertwright.runtime.process import configure_process
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.prediction import CHUNK_SIZE, predict_file

COLUMNS = {
    "texts": "texts",
    "predicted_per_second": "predictions/s",
    "embedded_per_second": "embeddings/s",
    "relative_speed": "predictions per embedding",
    "memory": "MB more for ten times as many texts",
}
"""Columns of the table, by key."""

WORDS_PER_TEXT = 3, 20
"""Minimum and maximum words per text."""


def compare(
    lines: list[str], num_texts: int, num_rounds: int, log: Callable[[str], None]
) -> dict[str, Any]:
    """Return the figures of a published encoder with a barely trained head."""
    configure_process()
    short_texts = sample_short_texts(lines, num_texts)
    model = load(checkpoint_folder())
    examples = [Example(text, label=str(n % 2)) for n, text in enumerate(short_texts[:64])]
    tuned = finetune(model, table_task("parity", Columns()), train=examples, epochs=1).model
    with tempfile.TemporaryDirectory() as work:
        file, output = Path(work) / "texts.txt", Path(work) / "predictions.jsonl"

        def predict(number: int) -> None:
            file.write_text("\n".join(short_texts[:number]) + "\n", encoding="utf-8")
            with open(output, "w", encoding="utf-8") as stream:
                for prediction in predict_file(tuned, file):
                    stream.write(json.dumps(prediction, ensure_ascii=False) + "\n")

        def embed() -> None:
            for start in range(0, num_texts, CHUNK_SIZE):
                np.save(
                    Path(work) / "vectors.npy", tuned.embed(short_texts[start : start + CHUNK_SIZE])
                )

        predict(num_texts // 10)
        before = after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds: dict[str, list[float]] = {"predicted": [], "embedded": []}
        for number in range(num_rounds):
            for name, run in (("predicted", lambda: predict(num_texts)), ("embedded", embed)):
                start = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - start)
            shown = ", ".join(f"{name} {times[-1]:.1f} s" for name, times in seconds.items())
            log(f"round {number + 1} of {num_rounds}: {shown}")
            if not number:
                after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ratios = [e / p for p, e in zip(seconds["predicted"], seconds["embedded"], strict=True)]
    return {
        "texts": num_texts,
        **{f"{name}_per_second": num_texts / median(times) for name, times in seconds.items()},
        "relative_speed": median(ratios),
        "memory": (after - before) / 1024,
    }


def sample_short_texts(lines: list[str], num_texts: int) -> list[str]:
    """Return texts of a few consecutive words each, selected by hash."""
    words = [word for line in lines for word in line.split()]
    min_words, max_words = WORDS_PER_TEXT
    starts = (
        uniform(stream_key(0, "predicting"), np.arange(num_texts)) * (len(words) - max_words)
    ).astype(int)
    spread = uniform(stream_key(1, "predicting"), np.arange(num_texts))
    sizes = min_words + (spread * (max_words - min_words + 1)).astype(int)
    return [" ".join(words[b : b + s]) for b, s in zip(starts, sizes, strict=True)]
