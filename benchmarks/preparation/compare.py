"""Megabytes of text prepared per second, against the script of Transformers.

Both process the same text with the same tokenizer in their own processes, in interleaved rounds.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.core.optional_dependencies import require_library
from bertwright.data.document import ReadCounts
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from bertwright.data.sample_text.sample import write_sample_text
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from bertwright.timing.interleaved import TimedProcess

VOCAB_SIZE = 16_384

COLUMNS = {
    "tokenizer": "tokenizer",
    "megabytes": "MB of text",
    "megabytes_per_second": "MB/s",
    "processes": "processes",
    "megabytes_per_second_per_core": "MB/s with one process",
    "against_datasets": "speed-up over datasets.map",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]


def compare(
    texts: Sequence[str | Path],
    kinds: Sequence[str],
    num_processes: int,
    num_rounds: int,
    without_peer: bool,
    log: Log,
) -> list[dict[str, Any]]:
    """Return a row per kind of tokenizer; without ``texts``, for the sample text.

    Errors: MissingExtra without the libraries of the peer.
    """
    if not without_peer:
        require_library("datasets", "huggingface")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        megabytes = _write_plain_text(texts, folder)
        return [
            _compare(folder, kind, num_processes, num_rounds, without_peer, log) | megabytes
            for kind in kinds
        ]


def _write_plain_text(texts: Sequence[str | Path], folder: Path) -> dict[str, float]:
    """Write the text as one plain file, for both sides."""
    if not texts:
        write_sample_text(folder / "sample")
        texts = [folder / "sample" / "sample.txt"]
    with open(folder / "text.txt", "w", encoding="utf-8") as file:
        for document in read_documents(find_sources(texts), ReadCounts()):
            file.write(f"{document.text}\n\n")
    return {"megabytes": (folder / "text.txt").stat().st_size / 1e6}


def _compare(
    folder: Path, kind: str, num_processes: int, num_rounds: int, without_peer: bool, log: Log
) -> dict[str, Any]:
    text, tokenizer = folder / "text.txt", folder / kind
    log(f"{kind}: training the tokenizer")
    train_tokenizer_on_files([text], tokenizer, {"kind": kind, "vocab_size": VOCAB_SIZE})
    programs = {"ours": ("ours", num_processes), "one process": ("ours", 1)}
    if not without_peer:
        programs["datasets"] = ("datasets", num_processes)
    times: dict[str, list[float]] = {name: [] for name in programs}
    with ExitStack() as stack:
        workers: dict[str, TimedProcess] = {}
        for name, (program, num_workers) in programs.items():
            settings = {
                "program": program,
                "num_processes": num_workers,
                "text": str(text),
                "tokenizer": str(tokenizer),
                "folder": str(folder / f"{kind} {name}"),
            }
            worker = TimedProcess("benchmarks.preparation.worker", settings, os.environ)
            workers[name] = stack.enter_context(worker)
        for number in range(num_rounds):
            for name, worker in workers.items():
                times[name].append(worker.seconds_per_step(1))
            shown = ", ".join(f"{name} {seconds[-1]:.2f} s" for name, seconds in times.items())
            log(f"{kind}: round {number + 1} of {num_rounds}: {shown}")
    megabytes = text.stat().st_size / 1e6
    ratios = [b / a for a, b in zip(times["ours"], times.get("datasets", []), strict=False)]
    return {
        "tokenizer": kind,
        "megabytes_per_second": megabytes / median(times["ours"]),
        "megabytes_per_second_per_core": megabytes / median(times["one process"]),
        "against_datasets": median(ratios) if ratios else None,
        "processes": num_processes,
        "rounds": num_rounds,
    }
