"""A server as it is started from a shell, and the clients that people have."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.serving.keys import read_keys
from bertwright.tasks.fine_tuned import FineTuned
from small_tasks import TEXTS

ROOT = Path(__file__).parents[2]

SEVERAL_LINES = re.MULTILINE | re.DOTALL

KEY = "a-key-that-is-long-enough"


class Started:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bertwright", "serve", str(folder), "--port", "0", *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "BERTWRIGHT_API_KEY": KEY},
        )
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        assert re.match(r"serving encoder\b.* at http://127\.0\.0\.1:", said), said
        self.address = said.split()[-1]

    def ask(self, path: str, body: Any = None) -> tuple[int, str]:
        """The status and the text of an answer; without a body it is a GET."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        request = urllib.request.Request(self.address + path, content, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def stop(self) -> str:
        """Send the signal; what was said until the end, which must be a good one."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, said
        return said


@pytest.fixture(scope="module")
def folder(encoder: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "encoder"
    encoder.save(folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Started]:
    started = Started(folder, "--precision", "float32", "--body-bytes", "1000000")
    yield started
    started.process.kill()
    started.process.communicate()


def test_the_client_of_openai(server: Started, encoder: TextModel) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key=KEY, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["encoder"]
        # It asks for base64 by itself.
        found = client.embeddings.create(model="encoder", input=TEXTS)
        vectors = np.array([one.embedding for one in found.data])
        np.testing.assert_allclose(vectors, encoder.embed(TEXTS, normalise=True), atol=1e-4)
        plain = client.embeddings.create(
            model="encoder", input=TEXTS[0], encoding_format="float", dimensions=8
        )
        assert len(plain.data[0].embedding) == 8
        with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
            client.embeddings.create(model="other", input="a")
        with pytest.raises(openai.UnprocessableEntityError, match="send texts"):
            client.embeddings.create(model="encoder", input=[1, 2])
    with (
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="x", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError, match="the key is none of those"),
    ):
        stranger.embeddings.create(model="encoder", input="a")


def test_the_client_of_text_embeddings_inference(
    server: Started, encoder: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import InferenceClient, constants

    # Other tests see to it that nothing is downloaded.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    expected = encoder.embed(TEXTS[0], normalise=True)
    for url in (server.address, f"{server.address}/embed"):
        found = InferenceClient(model=url, token=KEY).feature_extraction(TEXTS[0])
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.fixture(scope="module")
def of_several(folder: Path, solvers: dict[str, FineTuned]) -> Iterator[Started]:
    """A server of what the document names."""
    names = {"judge": "judge", "rank": "ranker", "tagger": "tagger", "reader": "reader"}
    for task, name in names.items():
        solvers[task].save(folder.parent / name)
    folders = [str(folder.parent / name) for name in names.values()]
    started = Started(folder, *folders, "--precision", "float32")
    yield started
    started.process.kill()
    started.process.communicate()


def test_the_document_is_true(of_several: Started) -> None:
    server = of_several
    written = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```py\n(.*?)^```", written, SEVERAL_LINES))
    there = code.replace("http://127.0.0.1:8000", server.address)
    exec(compile(there.replace("none is asked for", KEY), "serving.md", "exec"), {})
    asked = re.findall(r"^curl http://127.0.0.1:8000(\S+) .*?-d '(.*?)'$", written, SEVERAL_LINES)
    told = re.findall(r"^\| `POST (\S+)`", written, re.MULTILINE)
    assert {*told} == {*(path for path, _ in asked), "/v1/embeddings"}
    for path, body in asked:
        assert server.ask(path, json.loads(body))[0] == 200


def test_ten_megabytes_are_refused_and_the_client_hears_it(server: Started) -> None:
    status, answer = server.ask("/embed", {"inputs": "a" * 10_000_000})
    assert status == 413
    assert "the body has more than 1000000 bytes: send less at once" in answer


def test_no_answer_tells_a_path(server: Started, folder: Path) -> None:
    asked = [
        ("/embed", {"inputs": "a"}),
        ("/embed", {"inputs": "a", "model": str(folder)}),
        ("/explore", {"text": "The red bird"}),
        ("/fill-mask", {"inputs": "nothing hidden"}),
        ("/../../etc/passwd", {}),
    ]
    for path, body in asked:
        _, answer = server.ask(path, body)
        told = answer.replace(str(folder), "", 1) if body.get("model") else answer
        assert str(folder.parent) not in told
        assert "Traceback" not in told
        assert "site-packages" not in told


def test_garbage_on_the_wire_and_cut_connections_harm_nobody(server: Started) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    for sent in (b"\x00\xff\x00\r\n\r\n", b"GET", head, head + b'{"inputs"'):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent)
    assert server.ask("/embed", {"inputs": "a"})[0] == 200


def test_a_signal_loses_nothing_that_was_taken(folder: Path, encoder: TextModel) -> None:
    started = Started(folder, "--precision", "float32", "--deadline-ms", "1500")
    expected = encoder.embed(TEXTS, normalise=True)
    found: dict[int, tuple[int, str]] = {}

    def ask(number: int) -> None:
        found[number] = started.ask("/embed", {"inputs": TEXTS[number]})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    # They wait for company: all are inside when the signal comes.
    num_tokens = sum(len(ids) + 2 for ids in encoder.tokenizer.encode_batch(TEXTS[:8]))
    line = f'bertwright_queue_tokens{{model="encoder"}} {num_tokens}.0'
    while line not in started.ask("/metrics")[1]:
        assert not found
    said = started.stop()
    for thread in threads:
        thread.join(30)
    assert said == "stopped: everything that was taken is answered\n"
    assert len(found) == 8
    for number, (status, answer) in found.items():
        assert status == 200
        np.testing.assert_allclose(json.loads(answer)[0], expected[number], atol=1e-4)


NEVER_ENDING = """
import asyncio, time
from contextlib import asynccontextmanager
from fastapi import FastAPI
from bertwright.serving.door import Gate
from bertwright.serving.server import listen, run

@asynccontextmanager
async def lifespan(_):
    print("listening", flush=True)
    yield
    await asyncio.to_thread(time.sleep, 60)

app = FastAPI(lifespan=lifespan)
app.state.gate = Gate(1)
if {busy}:
    app.state.gate.enter("/embed")
with listen("127.0.0.1", 0, 30) as listening:
    run(app, listening, 30)
"""


@pytest.mark.parametrize(("busy", "number"), [(True, signal.SIGTERM), (False, signal.SIGINT)])
def test_a_second_signal_ends_it_at_once(busy: bool, number: signal.Signals) -> None:
    code = NEVER_ENDING.format(busy=busy)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    process.send_signal(number)
    # Until it waits for who is inside, or else for what has been taken.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.8)
    process.send_signal(number)
    assert process.wait(5) == 128 + number
    process.stdout.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("{folder}", "{folder}"), "two models are called encoder: rename a folder"),
        (("elsewhere",), "there is no model folder elsewhere"),
        (("{folder}", "--host", "nowhere.invalid"), "nobody can listen at nowhere.invalid:8000"),
        (("{folder}", "--host", "no..where"), "nobody can listen at no..where:8000"),
        (("{folder}", "--port", "{taken}"), "choose another"),
        (("{folder}", "--api-key-file", "{folder}"), "is a folder: name a file"),
        (("{folder}", "--api-key-file", "{weak}"), "key 1 must have 16 letters"),
    ],
)
def test_a_mistake_is_named(folder: Path, tmp_path: Path, options: tuple, words: str) -> None:
    weak = tmp_path / "keys"
    weak.write_text("swordfish\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        named = {"folder": folder, "taken": taken.getsockname()[1], "weak": weak}
        with pytest.raises(UserError, match=words) as refusal:
            CliRunner().invoke(
                app, ["serve", *(o.format(**named) for o in options)], catch_exceptions=False
            )
    assert "swordfish" not in str(refusal.value)


@pytest.mark.parametrize("held", ["", " \n"])
def test_a_variable_without_a_key_opens_nothing(monkeypatch: pytest.MonkeyPatch, held: str) -> None:
    monkeypatch.setenv("BERTWRIGHT_API_KEY", held)
    with pytest.raises(UserError, match="BERTWRIGHT_API_KEY holds no key: set it to one"):
        read_keys(None)
    monkeypatch.delenv("BERTWRIGHT_API_KEY")
    assert not read_keys(None)
