"""Megabytes of raw text prepared per second, against Transformers' own script.

Both work on the same text with the same tokenizer, each in processes of its own, in turns.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.bench.turns import Contestant
from bertwright.extras import require
from bertwright.text.documents import ReadCounts
from bertwright.text.readers import read_documents
from bertwright.text.sample import gather_sample
from bertwright.text.sources import find_sources
from bertwright.text.vocabularies import train_on_files

VOCABULARY_SIZE = 16_384

COLUMNS = {
    "tokenizer": "tokenizer",
    "megabytes": "MB of text",
    "megabytes_per_second": "MB/s",
    "processes": "processes",
    "megabytes_per_second_per_core": "MB/s of one process",
    "against_datasets": "times datasets.map",
}
"""What a document shows, by key."""

Say = Callable[[str], None]


def compare(
    texts: Sequence[str | Path],
    kinds: Sequence[str],
    processes: int,
    rounds: int,
    alone: bool,
    say: Say,
) -> list[dict[str, Any]]:
    """One row of figures per kind of tokenizer; ``alone`` leaves the peer out.

    Without ``texts`` it is the embedded sample text. Errors: MissingExtra where there is no peer.
    """
    if not alone:
        require("datasets", "huggingface")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        megabytes = _write_plainly(texts, folder)
        return [_compare(folder, kind, processes, rounds, alone, say) | megabytes for kind in kinds]


def _write_plainly(texts: Sequence[str | Path], folder: Path) -> dict[str, float]:
    """Lay the text down as one plain file, as both sides read it."""
    if not texts:
        gather_sample(folder / "sample")
        texts = [folder / "sample" / "sample.txt"]
    with open(folder / "text.txt", "w", encoding="utf-8") as file:
        for document in read_documents(find_sources(texts), ReadCounts()):
            file.write(f"{document.text}\n\n")
    return {"megabytes": (folder / "text.txt").stat().st_size / 1e6}


def _compare(
    folder: Path, kind: str, processes: int, rounds: int, alone: bool, say: Say
) -> dict[str, Any]:
    text, tokenizer = folder / "text.txt", folder / kind
    say(f"{kind}: learning a vocabulary")
    train_on_files([text], tokenizer, {"kind": kind, "size": VOCABULARY_SIZE})
    contestants = {"ours": ("ours", processes), "one process": ("ours", 1)}
    if not alone:
        contestants["datasets"] = ("datasets", processes)
    laps: dict[str, list[float]] = {name: [] for name in contestants}
    with ExitStack() as stack:
        opened: dict[str, Contestant] = {}
        for name, (contestant, number) in contestants.items():
            settings = {
                "contestant": contestant,
                "processes": number,
                "text": str(text),
                "tokenizer": str(tokenizer),
                "folder": str(folder / f"{kind} {name}"),
            }
            child = Contestant("bertwright.bench.preparing", settings, os.environ)
            opened[name] = stack.enter_context(child)
        for number in range(rounds):
            for name, child in opened.items():
                laps[name].append(child.seconds_per_step(1))
            shown = ", ".join(f"{name} {seconds[-1]:.2f} s" for name, seconds in laps.items())
            say(f"{kind}: round {number + 1} of {rounds}: {shown}")
    megabytes = text.stat().st_size / 1e6
    ratios = [b / a for a, b in zip(laps["ours"], laps.get("datasets", []), strict=False)]
    return {
        "tokenizer": kind,
        "megabytes_per_second": megabytes / median(laps["ours"]),
        "megabytes_per_second_per_core": megabytes / median(laps["one process"]),
        "against_datasets": median(ratios) if ratios else None,
        "processes": processes,
        "rounds": rounds,
    }
