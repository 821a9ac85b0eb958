"""Overload of a server for some minutes, then a signal to stop.

Many clients request embeddings and compare them with those of the model; other clients drop
connections, send garbage, or send ten megabytes. The server must reply correctly or with
Retry-After, and its memory must not grow.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.serving.client import HttpConnection, HttpReply, build_post
from benchmarks.serving.server_process import ServerProcess
from bertwright.core.rng import generator, stream_key
from bertwright.interop.loading import load
from bertwright.runtime.process import configure_process

OUTCOMES = {
    "correct": "correct replies",
    "texts": "texts",
    "wrong": "wrong",
    "lost": "lost",
    "busy": "429",
    "stopping": "503",
    "failed": "500",
    "unexpected": "anything else",
    "garbage_refused": "garbage refused",
    "too_large": "10 MB refused",
    "dropped": "connections dropped",
}
"""Outcomes of requests."""

COLUMNS = {
    "model": "model",
    "seconds": "seconds",
    "clients": "clients",
    **OUTCOMES,
    "p50_ms": "median reply, ms",
    "p99_ms": "99th percentile, ms",
    "memory": "MB at the start",
    "memory_end": "MB at the end",
    "exit_code": "exit code",
}
"""Columns of the table, by key."""

TOLERANCE = 1e-4
"""Tolerance of each number of a vector of length 1."""

QUEUE_TOKENS = 4096
"""Limit of the queue, lower than the load, so that some requests are refused."""

MAX_TEXTS = 8
"""Maximum texts per request."""

LARGE_BYTES = 10_000_000

GARBAGE_TIMEOUT_SECONDS = 0.5
"""Seconds to wait for a reply to garbage."""

SHUTDOWN_TIMEOUT_SECONDS = 60.0
"""Seconds within which the server must end after the signal."""

Vectors = NDArray[np.float32]


@dataclass
class OutcomeCounts:
    """Counts of outcomes by key, and the seconds of every correct reply."""

    counts: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])
    memory: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class LoadTest:
    """State that all clients share; ``stopped`` is set after the signal to the server."""

    address: str
    texts: Sequence[str]
    vectors: Vectors
    outcomes: OutcomeCounts
    stopped: asyncio.Event


def run_soak(
    folder: Path, texts: Sequence[str], num_clients: int, seconds: float, log: Callable[[str], None]
) -> dict[str, Any]:
    """Return the figures of a server under load."""
    configure_process()
    # In bfloat16 the rounding depends on the batch, by more than the tolerance.
    model = load(folder, "float32")
    vectors = model.embed(texts, normalise=True)
    options = ("--precision", "float32", "--queue-tokens", str(QUEUE_TOKENS))
    with ServerProcess(folder, *options) as server:
        outcomes = asyncio.run(_run_clients(server, texts, vectors, num_clients, seconds, log))
        exit_code, stderr = server.wait(SHUTDOWN_TIMEOUT_SECONDS)
    log(stderr.strip())
    memory, waits = outcomes.memory, outcomes.seconds or [float("nan")]
    tenth = max(1, len(memory) // 10)
    p50, p99 = np.percentile(waits, (50, 99)) * 1000
    return {
        "model": folder.resolve().name,
        "seconds": seconds,
        "clients": num_clients,
        **{name: outcomes.counts[name] for name in OUTCOMES},
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        # The first tenth includes lazy initialisation.
        "memory": float(np.median(memory[tenth : 2 * tenth] or memory)),
        "memory_end": float(np.median(memory[-tenth:])),
        "exit_code": exit_code,
    }


async def _run_clients(
    server: ServerProcess,
    texts: Sequence[str],
    vectors: Vectors,
    num_clients: int,
    seconds: float,
    log: Callable[[str], None],
) -> OutcomeCounts:
    """Run all clients until the server has ended."""
    load = LoadTest(server.address, texts, vectors, OutcomeCounts(), asyncio.Event())
    faulty = [_drop_connection, _send_garbage, _send_large_body]
    tasks = [asyncio.create_task(_run_client(load, number)) for number in range(num_clients)]
    tasks += [asyncio.create_task(_run_faulty_client(load, one)) for one in faulty]
    start = time.monotonic()
    while (remaining := start + seconds - time.monotonic()) > 0:
        load.outcomes.memory.append(server.memory_megabytes())
        if len(load.outcomes.memory) % 30 == 0:
            counts = ", ".join(f"{name} {number}" for name, number in load.outcomes.counts.items())
            log(f"{time.monotonic() - start:.0f} s: {counts}, {load.outcomes.memory[-1]:.0f} MB")
        await asyncio.sleep(min(1.0, remaining))
    server.terminate()
    load.stopped.set()
    await asyncio.wait_for(asyncio.gather(*tasks), SHUTDOWN_TIMEOUT_SECONDS)
    return load.outcomes


async def _run_client(test: LoadTest, index: int) -> None:
    """Send requests and compare the replies until the server stops."""
    key, turn = stream_key(0, "soak", index), 0
    while True:
        try:
            connection = await HttpConnection.open(test.address)
        except OSError:
            return
        try:
            while await _send_request(test, connection, generator(key, turn)):
                turn += 1
        except (OSError, EOFError):
            return
        finally:
            connection.close()
        turn += 1
        if test.stopped.is_set():
            return


async def _send_request(
    test: LoadTest, connection: HttpConnection, rng: np.random.Generator
) -> bool:
    """Send one request; return False where the connection must be closed."""
    outcomes = test.outcomes
    indices = rng.choice(len(test.texts), rng.integers(1, MAX_TEXTS + 1))
    body = {"inputs": [test.texts[n] for n in indices], "truncate": True}
    before_signal, start = not test.stopped.is_set(), time.perf_counter()
    try:
        reply = await connection.request(build_post("/embed", body))
    except (OSError, EOFError):
        # A request before the signal must get a reply, a later one need not.
        outcomes.counts["lost"] += before_signal
        raise
    seconds = time.perf_counter() - start
    if reply.status == 200:
        is_correct = _is_correct(reply, test.vectors[indices])
        outcomes.counts["correct" if is_correct else "wrong"] += 1
        outcomes.counts["texts"] += len(indices)
        outcomes.seconds.append(seconds)
        return True
    _count_reply(outcomes, reply, "unexpected")
    if reply.status == 429:
        retry = asyncio.wait_for(test.stopped.wait(), reply.retry_seconds)
        await asyncio.gather(retry, return_exceptions=True)
    return False


def _count_reply(outcomes: OutcomeCounts, reply: HttpReply, expected: str) -> None:
    """Count a reply as expected, unless its status may occur at any time."""
    always_possible = {429: "busy", 500: "failed", 503: "stopping"}
    outcomes.counts[always_possible.get(reply.status, expected)] += 1


def _is_correct(reply: HttpReply, expected: Vectors) -> bool:
    vectors = np.array(reply.json(), np.float32)
    return vectors.shape == expected.shape and bool(np.abs(vectors - expected).max() <= TOLERANCE)


FaultyClient = Callable[[LoadTest, HttpConnection, np.random.Generator], Awaitable[None]]


async def _run_faulty_client(test: LoadTest, client: FaultyClient) -> None:
    """Run a faulty client repeatedly, each time over a new connection."""
    turn = 0
    while not test.stopped.is_set():
        turn += 1
        try:
            connection = await HttpConnection.open(test.address)
        except OSError:
            return
        try:
            await client(test, connection, generator(stream_key(0, "soak", client.__name__), turn))
        except (OSError, EOFError):
            # The server closed the connection.
            test.outcomes.counts["garbage_refused"] += client is _send_garbage
        finally:
            connection.close()


async def _drop_connection(
    test: LoadTest, connection: HttpConnection, rng: np.random.Generator
) -> None:
    """Drop the connection in the middle of a request, or before its reply."""
    request = build_post("/embed", {"inputs": list(test.texts[:MAX_TEXTS]), "truncate": True})
    await connection.send(request[: rng.integers(1, len(request) + 1)])
    await asyncio.sleep(rng.uniform(0, 0.05))
    test.outcomes.counts["dropped"] += 1


async def _send_garbage(
    test: LoadTest, connection: HttpConnection, rng: np.random.Generator
) -> None:
    """Send bytes that are no request, no JSON, or an invalid body."""
    garbage = rng.bytes(200)
    request = [
        garbage,
        build_post("/embed", garbage),
        build_post("/embed", b"[" * 10_000),
        build_post("/embed", {"inputs": [1, None]}),
        build_post("/v1/embeddings", {"input": {"a": []}}),
        build_post("/nowhere", {}),
    ][rng.integers(6)]
    # The server waits for the rest of an incomplete request.
    reply = await asyncio.wait_for(connection.request(request), GARBAGE_TIMEOUT_SECONDS)
    _count_reply(
        test.outcomes, reply, "garbage_refused" if 400 <= reply.status < 500 else "unexpected"
    )
    await asyncio.sleep(0.02)


async def _send_large_body(
    test: LoadTest, connection: HttpConnection, rng: np.random.Generator
) -> None:
    """Send a body of ten megabytes."""
    reply = await connection.request(build_post("/embed", {"inputs": "a" * LARGE_BYTES}))
    _count_reply(test.outcomes, reply, "too_large" if reply.status == 413 else "unexpected")
    await asyncio.sleep(0.5)
