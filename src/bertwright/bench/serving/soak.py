"""A server under more than it can bear, for some minutes, and then a signal to stop.

Many clients ask for texts of mixed length and compare every answer with the vectors that the model
gives offline; meanwhile one cuts its connections, one sends what is no request, one sends ten
megabytes. Right answers, refusals that say when to come again, and memory that does not grow are
what is wanted.
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

from bertwright.bench.serving.client import Connection, Reply, post
from bertwright.bench.serving.process import ServerProcess
from bertwright.interop.loading import load
from bertwright.machine.process import tune_process
from bertwright.randomness import generator, key

COUNTED = {
    "answered": "right answers",
    "texts": "texts",
    "wrong": "wrong",
    "lost": "lost",
    "busy": "429",
    "stopping": "503",
    "failed": "500",
    "unlike": "anything else",
    "misread": "garbage refused",
    "too_large": "10 MB refused",
    "cut": "connections cut",
}
"""What becomes of requests."""

COLUMNS = {
    "model": "model",
    "seconds": "seconds",
    "clients": "clients",
    **COUNTED,
    "p50_ms": "median answer, ms",
    "p99_ms": "99th of 100, ms",
    "memory": "MB at first",
    "memory_end": "MB at the end",
    "exit_code": "exit code",
}
"""What a document shows, by key."""

TOLERANCE = 1e-4
"""Of a number of a vector of length 1."""

QUEUE_TOKENS = 4096
"""Less than the clients send at once, so that some are refused."""

MOST_TEXTS = 8
"""Of a request."""

LARGE_BYTES = 10_000_000

PATIENCE = 0.5
"""Seconds that who sends garbage waits for an answer."""

AFTER_SIGNAL = 60.0
"""Seconds in which a server that was asked to stop has to end."""

Vectors = NDArray[np.float32]


@dataclass
class Tally:
    """What became of the requests: ``counts`` by the keys of the table, and how many seconds each
    right answer took."""

    counts: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])
    memory: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class Load:
    """What all clients share: ``stopped`` is set when the server has been asked to stop, until when
    every request must be answered."""

    address: str
    texts: Sequence[str]
    vectors: Vectors
    tally: Tally
    stopped: asyncio.Event


def soak(
    folder: Path, texts: Sequence[str], num_clients: int, seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """Figures of a model that was asked by so many clients for so long."""
    tune_process()
    # In bfloat16 a number may round otherwise in other company, by more than is tolerated here.
    model = load(folder, "float32")
    vectors = model.embed(texts, normalise=True)
    options = ("--precision", "float32", "--queue-tokens", str(QUEUE_TOKENS))
    with ServerProcess(folder, *options) as server:
        tally = asyncio.run(_besiege(server, texts, vectors, num_clients, seconds, say))
        exit_code, said = server.wait(AFTER_SIGNAL)
    say(said.strip())
    memory, waits = tally.memory, tally.seconds or [float("nan")]
    tenth = max(1, len(memory) // 10)
    p50, p99 = np.percentile(waits, (50, 99)) * 1000
    return {
        "model": folder.resolve().name,
        "seconds": seconds,
        "clients": num_clients,
        **{name: tally.counts[name] for name in COUNTED},
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        # The first tenth is for what is made when it is first needed.
        "memory": float(np.median(memory[tenth : 2 * tenth] or memory)),
        "memory_end": float(np.median(memory[-tenth:])),
        "exit_code": exit_code,
    }


async def _besiege(
    server: ServerProcess,
    texts: Sequence[str],
    vectors: Vectors,
    num_clients: int,
    seconds: float,
    say: Callable[[str], None],
) -> Tally:
    """Everything that happens to the server, until it has ended."""
    load = Load(server.address, texts, vectors, Tally(), asyncio.Event())
    odd = [_cutting, _misspeaking, _exaggerating]
    tasks = [asyncio.create_task(_client(load, number)) for number in range(num_clients)]
    tasks += [asyncio.create_task(_again(load, one)) for one in odd]
    until, began = time.monotonic() + seconds, time.monotonic()
    while (left := until - time.monotonic()) > 0:
        load.tally.memory.append(server.memory())
        if len(load.tally.memory) % 30 == 0:
            counts = ", ".join(f"{name} {number}" for name, number in load.tally.counts.items())
            say(f"{time.monotonic() - began:.0f} s: {counts}, {load.tally.memory[-1]:.0f} MB")
        await asyncio.sleep(min(1.0, left))
    server.ask_to_stop()
    load.stopped.set()
    await asyncio.wait_for(asyncio.gather(*tasks), AFTER_SIGNAL)
    return load.tally


async def _client(load: Load, number: int) -> None:
    """Ask, compare, and ask again, until the server says that it is stopping, or is gone."""
    of, turn = key(0, "soak", number), 0
    while True:
        try:
            connection = await Connection.open(load.address)
        except OSError:
            return
        try:
            while await _asked(load, connection, generator(of, turn)):
                turn += 1
        except (OSError, EOFError):
            return
        finally:
            connection.close()
        turn += 1
        if load.stopped.is_set():
            return


async def _asked(load: Load, connection: Connection, drawn: np.random.Generator) -> bool:
    """One request; False where the connection is to be given up."""
    tally = load.tally
    chosen = drawn.choice(len(load.texts), drawn.integers(1, MOST_TEXTS + 1))
    asked = {"inputs": [load.texts[n] for n in chosen], "truncate": True}
    before, began = not load.stopped.is_set(), time.perf_counter()
    try:
        reply = await connection.ask(post("/embed", asked))
    except (OSError, EOFError):
        # What was sent before the signal has to be answered, what came later may find nobody.
        tally.counts["lost"] += before
        raise
    waited = time.perf_counter() - began
    if reply.status == 200:
        right = _right(reply, load.vectors[chosen])
        tally.counts["answered" if right else "wrong"] += 1
        tally.counts["texts"] += len(chosen)
        tally.seconds.append(waited)
        return True
    _count(tally, reply, "unlike")
    if reply.status == 429:
        with_patience = asyncio.wait_for(load.stopped.wait(), reply.retry_seconds)
        await asyncio.gather(with_patience, return_exceptions=True)
    return False


def _count(tally: Tally, reply: Reply, expected: str) -> None:
    """Count an answer as what was to be expected, unless it is one that may come at any time."""
    at_any_time = {429: "busy", 500: "failed", 503: "stopping"}
    tally.counts[at_any_time.get(reply.status, expected)] += 1


def _right(reply: Reply, expected: Vectors) -> bool:
    found = np.array(reply.json(), np.float32)
    return found.shape == expected.shape and bool(np.abs(found - expected).max() <= TOLERANCE)


Odd = Callable[[Load, Connection, np.random.Generator], Awaitable[None]]


async def _again(load: Load, odd: Odd) -> None:
    """What an odd client does, over and over, each time over another connection."""
    turn = 0
    while not load.stopped.is_set():
        turn += 1
        try:
            connection = await Connection.open(load.address)
        except OSError:
            return
        try:
            await odd(load, connection, generator(key(0, "soak", odd.__name__), turn))
        except (OSError, EOFError):
            # It was cut off, as it deserves.
            load.tally.counts["misread"] += odd is _misspeaking
        finally:
            connection.close()


async def _cutting(load: Load, connection: Connection, drawn: np.random.Generator) -> None:
    """Leave in the middle of a request, or before it is answered."""
    request = post("/embed", {"inputs": list(load.texts[:MOST_TEXTS]), "truncate": True})
    await connection.send(request[: drawn.integers(1, len(request) + 1)])
    await asyncio.sleep(drawn.uniform(0, 0.05))
    load.tally.counts["cut"] += 1


async def _misspeaking(load: Load, connection: Connection, drawn: np.random.Generator) -> None:
    """Send what is no request, no JSON, or not what is asked for."""
    garbage = drawn.bytes(200)
    sent = [
        garbage,
        post("/embed", garbage),
        post("/embed", b"[" * 10_000),
        post("/embed", {"inputs": [1, None]}),
        post("/v1/embeddings", {"input": {"a": []}}),
        post("/nowhere", {}),
    ][drawn.integers(6)]
    # What looks like the beginning of a request is waited for without end.
    reply = await asyncio.wait_for(connection.ask(sent), PATIENCE)
    _count(load.tally, reply, "misread" if 400 <= reply.status < 500 else "unlike")
    await asyncio.sleep(0.02)


async def _exaggerating(load: Load, connection: Connection, drawn: np.random.Generator) -> None:
    """Send ten megabytes."""
    reply = await connection.ask(post("/embed", {"inputs": "a" * LARGE_BYTES}))
    _count(load.tally, reply, "too_large" if reply.status == 413 else "unlike")
    await asyncio.sleep(0.5)
