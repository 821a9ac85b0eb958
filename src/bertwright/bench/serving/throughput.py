"""Texts per second through a server, against ``embed`` of the same texts by the same model.

They go in turns, one in this process and the other in its own, so that one waits while the other
computes; the clients are here. What is asked is made before, what is answered is read after.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bertwright.bench.serving.client import Connection, Reply, post
from bertwright.bench.serving.process import ServerProcess
from bertwright.interop.loading import load
from bertwright.machine.process import tune_process

COLUMNS = {
    "model": "model",
    "clients": "clients",
    "request": "texts a request",
    "texts": "texts",
    "served_per_second": "texts/s served",
    "embedded_per_second": "texts/s of embed",
    "share": "served of embed",
    "p50_ms": "median answer, ms",
    "p99_ms": "99th of 100, ms",
    "difference": "greatest difference of a number",
}
"""What a document shows, by key."""

WARM_UP = 64
"""Requests, and texts, that are not timed."""


def compare(
    folder: Path,
    texts: Sequence[str],
    num_clients: int,
    sizes: Sequence[int],
    rounds: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Figures of a model, for every number of texts that a request has."""
    tune_process()
    model = load(folder)
    model.embed(texts[:WARM_UP])
    with ServerProcess(folder) as server:
        return [
            _compare(
                server, model.embed, folder.resolve().name, texts, num_clients, size, rounds, say
            )
            for size in sizes
        ]


def _compare(
    server: ServerProcess,
    embed: Callable[..., Any],
    name: str,
    texts: Sequence[str],
    num_clients: int,
    size: int,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    groups = [texts[start : start + size] for start in range(0, len(texts), size)]
    requests = [post("/embed", {"inputs": group, "truncate": True}) for group in groups]
    asyncio.run(ask_all(server.address, requests[:WARM_UP], num_clients))
    served, embedded, waits, difference = list[float](), list[float](), list[float](), 0.0
    for number in range(rounds):
        began = time.perf_counter()
        expected = embed(texts, normalise=True)
        embedded.append(time.perf_counter() - began)
        began = time.perf_counter()
        answers = asyncio.run(ask_all(server.address, requests, num_clients))
        served.append(time.perf_counter() - began)
        waits += [seconds for _, seconds in answers]
        found = np.concatenate([_vectors(reply) for reply, _ in answers])
        difference = max(difference, float(np.abs(found - expected).max()))
        say(
            f"{size} texts a request, round {number + 1} of {rounds}: "
            f"served {served[-1]:.2f} s, embedded {embedded[-1]:.2f} s"
        )
    p50, p99 = np.percentile(waits, (50, 99)) * 1000
    return {
        "model": name,
        "clients": num_clients,
        "request": size,
        "texts": len(texts),
        "served_per_second": len(texts) / median(served),
        "embedded_per_second": len(texts) / median(embedded),
        "share": median(e / s for e, s in zip(embedded, served, strict=True)),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "difference": difference,
    }


async def ask_all(
    address: str, requests: Sequence[bytes], num_clients: int
) -> list[tuple[Reply, float]]:
    """The answers to requests, in their order, and how many seconds each took; every client has one
    on its way at any time."""
    left = iter(enumerate(requests))
    found: dict[int, tuple[Reply, float]] = {}

    async def client(left: Iterator[tuple[int, bytes]]) -> None:
        connection = await Connection.open(address)
        for number, request in left:
            began = time.perf_counter()
            reply = await connection.ask(request)
            found[number] = reply, time.perf_counter() - began
        connection.close()

    await asyncio.gather(*(client(left) for _ in range(num_clients)))
    return [found[number] for number in range(len(requests))]


def _vectors(reply: Reply) -> Any:
    if reply.status != 200:
        raise RuntimeError(f"the server answered {reply.status}: {reply.content[:200]!r}")
    return np.array(reply.json(), np.float32)
