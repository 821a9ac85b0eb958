"""Time, memory and size of indexing many texts, each in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_store import ResultStore
from benchmarks.retrieval.compare import TIMED_QUERIES, time_queries
from benchmarks.retrieval.systems import System
from bertwright.core.errors import UserError
from bertwright.retrieval.search_index import SearchIndex

COLUMNS = {
    "system": "system",
    "texts": "texts",
    "peak_bytes": "peak memory, bytes",
    "minutes": "minutes",
    "index_bytes": "index, bytes",
    "encode_microseconds": "encode a query, µs",
    "search_microseconds": "search, µs",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]
Runner = Callable[[Sequence[str]], int]
"""Runs ``bertwright`` with arguments, and returns the peak memory in bytes."""


_MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=sys.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
"""A small process between: the peak of a new process counts the memory of the one before."""


def run_measured(words: Sequence[str], program: Sequence[str] = ("-m", "bertwright")) -> int:
    """Run ``bertwright`` in a process; return its peak resident memory in bytes."""
    command = [sys.executable, "-c", _MEASURE, sys.executable, *program, *words]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        raise UserError(f"bertwright {' '.join(words)} failed: see its message above")
    return int(process.stdout) * 1024


def compare(
    synsets: list[dict[str, Any]],
    systems: Sequence[System],
    num_texts: int,
    output: Path,
    log: Log,
    run: Runner = run_measured,
) -> list[dict[str, Any]]:
    """Return a row for each system; finished ones are kept in ``million.json``."""
    store = ResultStore(output / "million.json")
    texts = output / f"{num_texts}.jsonl"
    rows: list[dict[str, Any]] = []
    for system in systems:
        name = f"{num_texts} texts, {system.name}"
        if name not in store.results:
            log(name)
            if not texts.is_file():
                write_numbered_texts(texts, synsets, num_texts)
            folder = output / "indexes" / name.replace(" ", "-")
            start = time.perf_counter()
            peak = run(["index", str(texts), "-o", str(folder), *system.words])
            minutes = (time.perf_counter() - start) / 60
            index = SearchIndex.open(folder, system.model)
            queries = [synset["gloss"] for synset in synsets[:TIMED_QUERIES]]
            encode, search = time_queries(index, queries)
            result = {
                "system": system.name,
                "texts": num_texts,
                "peak_bytes": peak,
                "minutes": minutes,
                "index_bytes": index.manifest.num_bytes,
                "encode_microseconds": encode,
                "search_microseconds": search,
            }
            store.add(name, result)
        rows.append(store.results[name])
    return rows


def write_numbered_texts(file: Path, synsets: list[dict[str, Any]], num_texts: int) -> None:
    """Write ``num_texts`` texts: glosses and examples, again and again, each with its number."""
    sentences = [text for synset in synsets for text in (synset["gloss"], *synset["examples"])]
    with open(file, "w", encoding="utf-8") as stream:
        for number in range(num_texts):
            text = f"{sentences[number % len(sentences)]} {number}"
            row = {"id": str(number), "text": text}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
