"""Scores, size and speed of search indexes over WordNet."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.result_store import ResultStore
from benchmarks.retrieval.systems import System
from bertwright.retrieval.evaluation import DEPTH, RetrievalTask, ranking_scores
from bertwright.retrieval.manifest import MANIFEST_FILE
from bertwright.retrieval.search_index import SearchIndex

COLUMNS = {
    "task": "task",
    "system": "system",
    "ndcg@10": "nDCG@10",
    "interval": "95 % interval",
    "mrr@10": "MRR@10",
    "recall@100": "recall@100",
    "index_bytes": "index, bytes",
    "encode_microseconds": "encode a query, µs",
    "search_microseconds": "search, µs",
    "texts": "texts",
    "queries": "queries",
}
"""Columns of the table, by key."""

TIMED_QUERIES = 200
QUERIES_AT_ONCE = 64
TOP = 10

Log = Callable[[str], None]


def compare(
    tasks: Sequence[RetrievalTask], systems: Sequence[System], output: Path, log: Log
) -> list[dict[str, Any]]:
    """Return a row for each task and system; finished ones are kept in ``results.json``."""
    store = ResultStore(output / "results.json")
    rows: list[dict[str, Any]] = []
    for task in tasks:
        for system in systems:
            name = f"{task.name}, {system.name}"
            if name not in store.results:
                log(name)
                store.add(name, _measure(task, system, output / "indexes"))
            rows.append(store.results[name])
    return rows


def _measure(task: RetrievalTask, system: System, folder: Path) -> dict[str, Any]:
    index = _open_index(task, system, folder / f"{task.name}, {system.name}".replace(" ", "-"))
    rankings: list[list[str]] = []
    for start in range(0, len(task.queries), QUERIES_AT_ONCE):
        queries = [query.text for query in task.queries[start : start + QUERIES_AT_ONCE]]
        rankings += [[hit.id for hit in hits] for hits in index.search(queries, DEPTH)]
    scores = ranking_scores(rankings, [query.relevant for query in task.queries])
    ndcg = scores["ndcg@10"]
    encode, search = time_queries(index, [q.text for q in task.queries[:TIMED_QUERIES]])
    return {
        "task": task.name,
        "system": system.name,
        "ndcg@10": ndcg.value,
        "interval": [ndcg.low, ndcg.high],
        "mrr@10": scores["mrr@10"].value,
        "recall@100": scores["recall@100"].value,
        "index_bytes": index.manifest.num_bytes,
        "encode_microseconds": encode,
        "search_microseconds": search,
        "texts": len(task.texts),
        "queries": len(task.queries),
    }


def _open_index(task: RetrievalTask, system: System, folder: Path) -> SearchIndex:
    """Return the index of a system; an unfinished one is continued."""
    if (folder / MANIFEST_FILE).is_file():
        return SearchIndex.open(folder, system.model)
    return SearchIndex.build(
        task.texts, folder, system.model, kind=system.kind, resume=True, **system.settings
    )


def time_queries(index: SearchIndex, queries: Sequence[str]) -> tuple[float, float]:
    """Return the median microseconds to encode a query alone, and to find its texts."""
    encode: list[float] = []
    search: list[float] = []
    for query in queries:
        start = time.perf_counter()
        vectors = None if index.encoder is None else index.encoder.encode_queries([query])
        encoded = time.perf_counter()
        index.rank([query], TOP, vectors)
        encode.append(encoded - start)
        search.append(time.perf_counter() - encoded)
    return 1e6 * median(encode), 1e6 * median(search)
