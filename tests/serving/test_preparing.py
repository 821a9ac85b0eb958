"""What is done before the queue of a model is bounded as that queue is, in size and in time."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

import pytest

from bertwright.serving.preparing import BODIES

MANY = 40
"""Requests: more than any machine has threads for their pieces."""


class Slow:
    """A model whose texts become no pieces until it may go on."""

    def __init__(self, encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.num_begun = Event(), 0
        pieces, lock = encoder.pieces, Lock()

        def slowly(texts: Any) -> Any:
            with lock:
                self.num_begun += 1
            assert self.go.wait(20)
            return pieces(texts)

        monkeypatch.setattr(encoder, "pieces", slowly)


@pytest.fixture
def slow(encoder, monkeypatch) -> Iterator[Slow]:
    found = Slow(encoder, monkeypatch)
    yield found
    found.go.set()


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MANY) as pool:
        yield pool


def test_time_is_up_before_there_are_pieces_too(serving, slow: Slow, clients: Any) -> None:
    client = serving(timeout_seconds=0.3)
    asked = [
        clients.submit(client.post, "/explore" if n % 2 else "/embed", json={key: "red"})
        for n in range(MANY)
        for key in ["text" if n % 2 else "inputs"]
    ]
    answers = [each.result(10) for each in asked]
    assert {answer.status_code for answer in answers} == {504}
    num_begun = slow.num_begun
    assert 0 < num_begun < MANY
    slow.go.set()
    # Behind all of them, had they not been let go.
    assert client.post("/embed", json={"inputs": "red"}).status_code == 200
    assert slow.num_begun == num_begun + 1


def test_no_more_waits_than_a_few_of_the_largest_bodies(serving, slow: Slow, clients: Any) -> None:
    client = serving(body_bytes=100)
    body = {"inputs": "a" * 80}
    held = [clients.submit(client.post, "/embed", json=body) for _ in range(BODIES)]
    until = time.monotonic() + 10
    while slow.num_begun < BODIES:
        assert time.monotonic() < until
        time.sleep(0.002)
    refusal = client.post("/embed", json=body)
    assert (refusal.status_code, refusal.headers["retry-after"]) == (429, "1")
    assert "too many texts wait" in refusal.json()["error"]
    slow.go.set()
    assert {each.result(10).status_code for each in held} == {200}
    assert client.post("/embed", json=body).status_code == 200


@pytest.mark.parametrize(("num_texts", "num_places"), [(1, 300_000), (512, 500)])
def test_hidden_places_are_counted_before_there_are_pieces(
    serving, encoder, monkeypatch, num_texts: int, num_places: int
) -> None:
    made: list[str] = []
    monkeypatch.setattr(encoder.tokenizer, "encode_hiding", made.append)
    asked = {"inputs": ["[MASK]" * num_places] * num_texts}
    assert serving().post("/fill-mask", json=asked).status_code == 413
    assert not made
