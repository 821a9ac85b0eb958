"""A server started from the command line, with common clients."""

import http.client
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

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.retrieval.search_index import SearchIndex
from bertwright.serving.settings import read_api_keys
from bertwright.tasks.conformal.calibration import labelled_scores
from bertwright.tasks.fine_tuned_model import FineTunedModel
from checkout import CHECKOUT
from small_tasks import TEXTS, classes

SEVERAL_LINES = re.MULTILINE | re.DOTALL

KEY = "a-key-that-is-long-enough"


class ServerProcess:
    """A server in a child process."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bertwright", "serve", str(folder), "--port", "0", *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "BERTWRIGHT_API_KEY": KEY},
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert re.match(r"serving encoder\b.* at http://127\.0\.0\.1:", line), line
        self.address = line.split()[-1]

    def request(self, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the text of a response; without a body, to a GET request."""
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
        """Send SIGTERM and return the remaining output."""
        self.process.send_signal(signal.SIGTERM)
        _, output = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, output
        return output


@pytest.fixture(scope="module")
def folder(encoder: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "encoder"
    encoder.save(folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(folder, "--precision", "float32", "--body-bytes", "1000000")
    yield process
    process.process.kill()
    process.process.communicate()


def test_the_openai_client(server: ServerProcess, encoder: TextModel) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.address}/v1", api_key=KEY, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["encoder"]
        # The client requests base64 by default.
        response = client.embeddings.create(model="encoder", input=TEXTS)
        vectors = np.array([one.embedding for one in response.data])
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
        pytest.raises(openai.AuthenticationError, match="the API key is wrong"),
    ):
        stranger.embeddings.create(model="encoder", input="a")


def test_the_hugging_face_client(
    server: ServerProcess, encoder: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import InferenceClient, constants

    # Other tests disable downloads.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    expected = encoder.embed(TEXTS[0], normalise=True)
    for url in (server.address, f"{server.address}/embed"):
        vector = InferenceClient(model=url, token=KEY).feature_extraction(TEXTS[0])
        np.testing.assert_allclose(vector, expected, atol=1e-4)


@pytest.fixture(scope="module")
def multi_model_server(
    folder: Path, task_models: dict[str, FineTunedModel], translator: FineTunedModel
) -> Iterator[ServerProcess]:
    """A server of the models in the documentation."""
    names = {"sentiment": "classifier", "rank": "ranker", "tagger": "tagger", "reader": "reader"}
    classifier = task_models["sentiment"]
    classifier.conformal = labelled_scores(classifier, classes() * 5).calibrate()
    for task, name in names.items():
        task_models[task].save(folder.parent / name)
    classifier.conformal = None
    translator.save(folder.parent / "translator")
    folders = [str(folder.parent / name) for name in (*names.values(), "translator")]
    index = folder.parent / "articles-index"
    SearchIndex.build(TEXTS, index, folder, kind="hybrid", precision="float32")
    process = ServerProcess(folder, *folders, "--index", str(index), "--precision", "float32")
    yield process
    process.process.kill()
    process.process.communicate()


def test_the_examples_of_the_documentation_work(multi_model_server: ServerProcess) -> None:
    server = multi_model_server
    document = (CHECKOUT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```py\n(.*?)^```", document, SEVERAL_LINES))
    code = code.replace("http://127.0.0.1:8000", server.address)
    code = re.sub(r"api_key=\"[^\"]*\"", f'api_key="{KEY}"', code)
    exec(compile(code, "serve.md", "exec"), {})
    requests = re.findall(
        r"^curl http://127.0.0.1:8000(\S+) .*?-d '(.*?)'$", document, SEVERAL_LINES
    )
    endpoints = re.findall(r"^\| `POST (\S+)`", document, re.MULTILINE)
    assert {*endpoints} == {*(path for path, _ in requests), "/v1/embeddings"}
    for path, body in requests:
        assert server.request(path, json.loads(body))[0] == 200


def test_a_too_large_body_is_reported_to_the_client(server: ServerProcess) -> None:
    status, answer = server.request("/embed", {"inputs": "a" * 10_000_000})
    assert status == 413
    assert "the body has more than 1000000 bytes: send less per request" in answer


def test_responses_contain_no_paths(server: ServerProcess, folder: Path) -> None:
    requests = [
        ("/embed", {"inputs": "a"}),
        ("/embed", {"inputs": "a", "model": str(folder)}),
        ("/explore", {"text": "The red bird"}),
        ("/fill-mask", {"inputs": "no mask"}),
        ("/../../etc/passwd", {}),
    ]
    for path, body in requests:
        _, text = server.request(path, body)
        text = text.replace(str(folder), "", 1) if body.get("model") else text
        assert str(folder.parent) not in text
        assert "Traceback" not in text
        assert "site-packages" not in text


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/", 200), ("/embed", 401)])
def test_a_head_request_has_the_headers_of_get(
    server: ServerProcess, path: str, status: int
) -> None:
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=30)
    answers: list[tuple[int, dict[str, str], bytes]] = []
    for method in ("HEAD", "GET", "HEAD"):
        connection.request(method, path)
        answer = connection.getresponse()
        headers = {name: value for name, value in answer.getheaders() if name != "date"}
        answers.append((answer.status, headers, answer.read()))
    connection.close()
    assert [answer[:2] for answer in answers] == [answers[1][:2]] * 3
    assert answers[0][0] == status
    assert [bool(body) for *_, body in answers] == [False, True, False]


def test_garbage_and_dropped_connections_are_harmless(server: ServerProcess) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    head = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    for sent in (b"\x00\xff\x00\r\n\r\n", b"GET", head, head + b'{"inputs"'):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent)
    assert server.request("/embed", {"inputs": "a"})[0] == 200


def test_a_signal_finishes_all_accepted_requests(folder: Path, encoder: TextModel) -> None:
    server = ServerProcess(folder, "--precision", "float32", "--deadline-ms", "1500")
    expected = encoder.embed(TEXTS, normalise=True)
    responses: dict[int, tuple[int, str]] = {}

    def embed(number: int) -> None:
        responses[number] = server.request("/embed", {"inputs": TEXTS[number]})

    threads = [threading.Thread(target=embed, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    # The model waits for more texts, so all requests are active when the signal arrives.
    num_tokens = sum(len(ids) + 2 for ids in encoder.tokenizer.encode_batch(TEXTS[:8]))
    line = f'bertwright_queue_tokens{{model="encoder"}} {num_tokens}.0'
    while line not in server.request("/metrics")[1]:
        assert not responses
    output = server.stop()
    for thread in threads:
        thread.join(30)
    assert output == "stopped: all accepted requests are answered\n"
    assert len(responses) == 8
    for number, (status, text) in responses.items():
        assert status == 200
        np.testing.assert_allclose(json.loads(text)[0], expected[number], atol=1e-4)


NEVER_ENDING = """
import asyncio, time
from contextlib import asynccontextmanager
from fastapi import FastAPI
from bertwright.serving.middleware import AdmissionControl
from bertwright.serving.server import listen, run_server

@asynccontextmanager
async def lifespan(_):
    print("listening", flush=True)
    yield
    await asyncio.to_thread(time.sleep, 60)

app = FastAPI(lifespan=lifespan)
app.state.admission = AdmissionControl(1)
if {busy}:
    app.state.admission.admit("/embed")
with listen("127.0.0.1", 0, 30) as listening:
    run_server(app, listening, 30)
"""


@pytest.mark.parametrize(
    ("busy", "number"),
    [(True, signal.SIGTERM), pytest.param(False, signal.SIGINT, marks=pytest.mark.full)],
)
def test_a_second_signal_exits_immediately(busy: bool, number: signal.Signals) -> None:
    code = NEVER_ENDING.format(busy=busy)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    process.send_signal(number)
    # The server waits for the active request, or for its lifespan to end.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.8)
    process.send_signal(number)
    assert process.wait(5) == 128 + number
    process.stdout.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("{folder}", "{folder}"), "two models are called encoder: rename a folder"),
        (("elsewhere",), "no model folder elsewhere"),
        (("{folder}", "--host", "nowhere.invalid"), "cannot listen on nowhere.invalid:8000"),
        (("{folder}", "--host", "no..where"), "cannot listen on no..where:8000"),
        (("{folder}", "--port", "{taken}"), "choose another"),
        (("{folder}", "--api-key-file", "{folder}"), "is a folder: name a file"),
        (("{folder}", "--api-key-file", "{weak}"), "key 1 must have at least 16"),
        (("{folder}", "--deadline-ms", "inf"), "wait inf ms for more texts"),
        (("{folder}", "--deadline-ms", "900", "--timeout", "0.9"), "time out after 900 ms"),
    ],
)
def test_invalid_options_are_reported(
    folder: Path, tmp_path: Path, options: tuple, message: str
) -> None:
    weak = tmp_path / "keys"
    weak.write_text("swordfish\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"folder": folder, "taken": taken.getsockname()[1], "weak": weak}
        with pytest.raises(UserError, match=message) as error:
            CliRunner().invoke(
                app, ["serve", *(o.format(**values) for o in options)], catch_exceptions=False
            )
    assert "swordfish" not in str(error.value)


@pytest.mark.parametrize("value", ["", " \n"])
def test_an_empty_key_variable_is_rejected(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("BERTWRIGHT_API_KEY", value)
    with pytest.raises(UserError, match="BERTWRIGHT_API_KEY holds no key: set it to a key"):
        read_api_keys(None)
    monkeypatch.delenv("BERTWRIGHT_API_KEY")
    assert not read_api_keys(None)
