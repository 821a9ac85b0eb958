"""Texts per second of a server, against ``embed`` of the same model.

The server runs in its own process; the rounds are interleaved, so that only one side computes.
Requests are built before, and replies parsed after the timing.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.serving.client import HttpConnection, HttpReply, build_post
from benchmarks.serving.server_process import ServerProcess
from bertwright.interop.loading import load
from bertwright.runtime.process import configure_process

COLUMNS = {
    "model": "model",
    "clients": "clients",
    "request": "texts per request",
    "texts": "texts",
    "served_per_second": "texts/s served",
    "embedded_per_second": "texts/s of embed",
    "relative_speed": "served relative to embed",
    "p50_ms": "median reply, ms",
    "p99_ms": "99th percentile, ms",
    "difference": "largest difference of a number",
}
"""Columns of the table, by key."""

NUM_WARM_UP = 64
"""Requests and texts of the warm-up."""


def compare(
    folder: Path,
    texts: Sequence[str],
    num_clients: int,
    texts_per_request: Sequence[int],
    num_rounds: int,
    log: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Return a row for every number of texts per request."""
    configure_process()
    model = load(folder)
    model.embed(texts[:NUM_WARM_UP])
    with ServerProcess(folder) as server:
        return [
            _compare(
                server,
                model.embed,
                folder.resolve().name,
                texts,
                num_clients,
                size,
                num_rounds,
                log,
            )
            for size in texts_per_request
        ]


def _compare(
    server: ServerProcess,
    embed: Callable[..., Any],
    name: str,
    texts: Sequence[str],
    num_clients: int,
    texts_per_request: int,
    num_rounds: int,
    log: Callable[[str], None],
) -> dict[str, Any]:
    groups = [
        texts[start : start + texts_per_request]
        for start in range(0, len(texts), texts_per_request)
    ]
    requests = [build_post("/embed", {"inputs": group, "truncate": True}) for group in groups]
    asyncio.run(request_all(server.address, requests[:NUM_WARM_UP], num_clients))
    served, embedded, waits, difference = list[float](), list[float](), list[float](), 0.0
    for number in range(num_rounds):
        start = time.perf_counter()
        expected = embed(texts, normalise=True)
        embedded.append(time.perf_counter() - start)
        start = time.perf_counter()
        replies = asyncio.run(request_all(server.address, requests, num_clients))
        served.append(time.perf_counter() - start)
        waits += [seconds for _, seconds in replies]
        vectors = np.concatenate([_parse_vectors(reply) for reply, _ in replies])
        difference = max(difference, float(np.abs(vectors - expected).max()))
        log(
            f"{texts_per_request} texts a request, round {number + 1} of {num_rounds}: "
            f"served {served[-1]:.2f} s, embedded {embedded[-1]:.2f} s"
        )
    p50, p99 = np.percentile(waits, (50, 99)) * 1000
    return {
        "model": name,
        "clients": num_clients,
        "request": texts_per_request,
        "texts": len(texts),
        "served_per_second": len(texts) / median(served),
        "embedded_per_second": len(texts) / median(embedded),
        "relative_speed": median(e / s for e, s in zip(embedded, served, strict=True)),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "difference": difference,
    }


async def request_all(
    address: str, requests: Sequence[bytes], num_clients: int
) -> list[tuple[HttpReply, float]]:
    """Return the replies in the order of the requests, with their seconds.

    Every client sends one request at a time.
    """
    pending = iter(enumerate(requests))
    replies: dict[int, tuple[HttpReply, float]] = {}

    async def client(pending: Iterator[tuple[int, bytes]]) -> None:
        connection = await HttpConnection.open(address)
        for number, request in pending:
            start = time.perf_counter()
            reply = await connection.request(request)
            replies[number] = reply, time.perf_counter() - start
        connection.close()

    await asyncio.gather(*(client(pending) for _ in range(num_clients)))
    return [replies[number] for number in range(len(requests))]


def _parse_vectors(reply: HttpReply) -> Any:
    if reply.status != 200:
        raise RuntimeError(f"the server replied {reply.status}: {reply.content[:200]!r}")
    return np.array(reply.json(), np.float32)
