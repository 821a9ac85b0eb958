"""Answers per second, against the vectors of the same texts: what a head and a file cost.

Both go in turns over the same short texts in one process, from a file to a file.
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

from bertwright.bench.embedding import checkpoint_folder
from bertwright.interop.loading import load
from bertwright.machine.process import tune_process
from bertwright.randomness import key, uniform
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.prediction import AT_ONCE, predict_file

COLUMNS = {
    "texts": "texts",
    "predicted_per_second": "answers/s",
    "embedded_per_second": "vectors/s",
    "share": "answers of vectors",
    "memory": "MB more for ten times as many",
}
"""What a document shows, by key."""

WORDS = 3, 20
"""The fewest and the most of a text."""


def compare(
    lines: list[str], texts: int, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Figures of the published encoder, with a head that knows little."""
    tune_process()
    short = short_texts(lines, texts)
    model = load(checkpoint_folder())
    examples = [Example(text, label=str(n % 2)) for n, text in enumerate(short[:64])]
    tuned = finetune(model, table_task("own", Columns()), train=examples, epochs=1).model
    with tempfile.TemporaryDirectory() as work:
        file, out = Path(work) / "texts.txt", Path(work) / "said.jsonl"

        def predict(number: int) -> None:
            file.write_text("\n".join(short[:number]) + "\n", encoding="utf-8")
            with open(out, "w", encoding="utf-8") as opened:
                for said in predict_file(tuned, file):
                    opened.write(json.dumps(said, ensure_ascii=False) + "\n")

        def embed() -> None:
            for start in range(0, texts, AT_ONCE):
                np.save(Path(work) / "vectors.npy", tuned.embed(short[start : start + AT_ONCE]))

        predict(texts // 10)
        before = after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds: dict[str, list[float]] = {"predicted": [], "embedded": []}
        for number in range(rounds):
            for name, run in (("predicted", lambda: predict(texts)), ("embedded", embed)):
                began = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - began)
            shown = ", ".join(f"{name} {laps[-1]:.1f} s" for name, laps in seconds.items())
            say(f"round {number + 1} of {rounds}: {shown}")
            if not number:
                after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shares = [e / p for p, e in zip(seconds["predicted"], seconds["embedded"], strict=True)]
    return {
        "texts": texts,
        **{f"{name}_per_second": texts / median(of) for name, of in seconds.items()},
        "share": median(shares),
        "memory": (after - before) / 1024,
    }


def short_texts(lines: list[str], number: int) -> list[str]:
    """So many texts of a few words each, cut from these lines by hash."""
    words = [word for line in lines for word in line.split()]
    fewest, most = WORDS
    begin = (uniform(key(0, "predicting"), np.arange(number)) * (len(words) - most)).astype(int)
    spread = uniform(key(1, "predicting"), np.arange(number))
    size = fewest + (spread * (most - fewest + 1)).astype(int)
    return [" ".join(words[b : b + s]) for b, s in zip(begin, size, strict=True)]
