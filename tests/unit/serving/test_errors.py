"""Invalid requests get a one-message error without much work."""

import json
import logging
import re
import time
from typing import Any

import pytest
import tokenizers as library
from fastapi.routing import iter_route_contexts
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.vocabulary.static_embeddings import static_embedding_model
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.serving import service
from bertwright.serving.middleware import PUBLIC_PATHS
from toy_recipes import toy

JSON = {"Content-Type": "application/json"}

KEY, OTHER = "a-key-that-is-long-enough", "another-key-that-is-long"


def message(answer: Any) -> str:
    error = answer.json()["error"]
    return error["message"] if isinstance(error, dict) else error


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/embed", {"inputs": ["a"] * 9}, 413, "9 texts, the maximum is 8"),
        ("/embed", {"inputs": "bird " * 30}, 413, "text 1 has 32 tokens, the maximum is 20"),
        ("/fill-mask", {"inputs": ["[MASK]"] * 9}, 413, "9 texts"),
        ("/fill-mask", {"inputs": ["[MASK]", "[MASK] " * 19]}, 413, "text 2 has 21 tokens, the"),
        (
            "/fill-mask",
            {"inputs": ["[MASK] " * 15] * 6, "top_k": 100},
            413,
            "100 predictions for each of 90 masks, the maximum is 8192 in all: use fewer masks, or",
        ),
        ("/v1/embeddings", {"input": ["bird " * 18] * 8}, 413, "160 tokens, the maximum is 100"),
        ("/embed", {"inputs": "a" * 6000}, 413, "more than 4096 bytes"),
        (
            "/embed",
            {"inputs": [1, 2]},
            422,
            "token ids, which differ between vocabularies: send texts",
        ),
        ("/v1/embeddings", {"input": [[1, 2]]}, 422, "send texts"),
        ("/v1/embeddings", {"input": "a", "dimensions": 33}, 422, "have 32: request at most 32"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, 422, "must be 1 or more"),
        ("/embed", {"inputs": "a", "dimensions": 33}, 422, "have 32: request at most 32"),
        ("/embed", {"inputs": "a", "prompt_name": "query"}, 422, "it has none, leave prompt_name"),
        ("/embed", {"input": "a"}, 422, "has no key 'input': did you mean 'inputs'?"),
        ("/embed", {"inputs": []}, 422, "must hold 1 or more"),
        ("/embed", {"inputs": ["a", None]}, 422, "inputs.1: must be text, not None"),
        ("/embed", ["a"], 422, "must be a JSON object"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, 422, "must be 'right'"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "a pair of texts, or a list of lists"),
        ("/fill-mask", {"inputs": "a"}, 400, "has no mask: write [MASK]"),
        ("/fill-mask", {"inputs": "[MASK]", "top_k": 0}, 422, "top_k: must be 1 or more"),
        ("/fill-mask", {"inputs": "[MASK]", "top_k": "3"}, 422, "top_k: must be a whole number"),
        ("/fill-mask", {"inputs": "[MASK]", "top_k": True}, 422, "top_k: must be a whole number"),
        ("/embed", {"inputs": "a", "truncate": "yes"}, 422, "truncate: must be true or false"),
        ("/explore", {"text": " "}, 422, "must not be empty: enter some words"),
        ("/explore", {"text": "\tfoo"}, 400, "no text has a word that fits"),
        ("/explore", {"text": "\x07\x08"}, 400, "no text has a word that fits"),
    ],
)
def test_the_message_names_the_error(serving, path: str, body: Any, status: int, text: str) -> None:
    limits = {
        "max_texts": 8,
        "max_text_tokens": 20,
        "max_queue_tokens": 100,
        "max_body_bytes": 4096,
    }
    answer = serving(**limits).post(path, json=body)
    assert answer.status_code == status, answer.text
    assert text in message(answer)
    assert "\n" not in message(answer)
    assert len(message(answer)) <= 300


def test_the_maximum_length_is_the_same_for_all_endpoints(serving, encoder) -> None:
    client = serving(max_text_tokens=9)
    for path, text in (("/embed", "bird "), ("/fill-mask", "[MASK] ")):
        assert client.post(path, json={"inputs": text * 7}).status_code == 200
        assert client.post(path, json={"inputs": text * 8}).status_code == 413
    max_length = encoder.model.encoder.max_length
    for path, text in (("/embed", "bird"), ("/fill-mask", "[MASK]")):
        answer = serving().post(path, json={"inputs": text + " bird" * max_length})
        assert answer.status_code == 413
        assert f"the maximum is {max_length}: shorten it" in message(answer)


def test_the_number_of_masks_is_limited(serving, encoder, monkeypatch) -> None:
    monkeypatch.setattr(service, "MAX_MASKED_POSITIONS", 4)
    monkeypatch.setattr(service, "MAX_PREDICTED_TOKENS", 20)
    client = serving()
    for inputs, top_k, status in (
        ("[MASK] " * 4, 5, 200),
        ("[MASK] " * 5, 1, 413),
        (["[MASK] " * 4] * 5, 1, 200),
        (["[MASK] " * 4] * 5, 2, 413),
        ("[MASK]", 20, 200),
        ("[MASK]", 21, 413),
    ):
        answer = client.post("/fill-mask", json={"inputs": inputs, "top_k": top_k})
        assert answer.status_code == status, (inputs, top_k)


@pytest.mark.parametrize(
    ("name", "path", "body", "text"),
    [
        ("pairs", "/predict", {"inputs": "a"}, "needs pairs: send [text, text]"),
        ("sentiment", "/predict", {"inputs": ["a", "b"]}, "takes no pairs: send [[text], [text]]"),
        ("sentiment", "/predict", {"inputs": [["a"], ["a", "b"]]}, "takes no pairs"),
        ("sentiment", "/predict", {"inputs": "bird " * 600}, "text 1 has 90 tokens too many"),
        (
            "reader",
            "/answer",
            {"inputs": [{"question": "bird " * 70, "text": "a"}]},
            "question 1 has 6 tokens too many",
        ),
        ("reader", "/answer", {"inputs": [{"question": "a"}]}, "inputs.0.text: is missing"),
        (
            "reader",
            "/answer",
            {"inputs": [{"question": "a", "text": "bird " * 9000}]},
            "tokens in all windows, the maximum is 8192",
        ),
    ],
)
def test_the_message_names_the_error_of_a_task(
    serving, task_models, name: str, path: str, body: Any, text: str
) -> None:
    answer = serving({name: task_models[name]}).post(path, json=body)
    assert answer.status_code in (413, 422)
    assert text in message(answer)


def test_a_long_question_is_truncated_on_request(serving, task_models) -> None:
    body = {"inputs": [{"question": "bird " * 70, "text": "The red bird"}], "truncate": True}
    assert serving({"reader": task_models["reader"]}).post("/answer", json=body).status_code == 200


@pytest.mark.parametrize("max_text_tokens", [3, 20, 600])
@pytest.mark.parametrize("name", ["sentiment", "pairs", "topics", "number", "similarity", "rank"])
def test_truncated_texts_have_the_maximum_length(
    serving, task_models, name: str, max_text_tokens: int
) -> None:
    long = "bird " * 700
    pair = name in ("pairs", "similarity", "rank")
    inputs = [[long, f"red {long}"]] if pair else [[long]]
    client = serving({name: task_models[name]}, max_text_tokens=max_text_tokens)
    assert client.post("/predict", json={"inputs": inputs}).status_code == 413
    answer = client.post("/predict", json={"inputs": inputs, "truncate": True})
    assert answer.status_code == 200, answer.text
    if name == "rank":
        body = {"query": "red", "texts": [long, "red bird"], "truncate": True}
        assert client.post("/rerank", json=body).status_code == 200


def test_a_page_is_rendered_for_every_accepted_text(serving) -> None:
    client = serving(max_queue_tokens=20)
    for num_words, status in ((18, 200), (19, 413)):
        for path, key in (("/explore", "text"), ("/embed", "inputs")):
            answer = client.post(path, json={key: "bird " * num_words})
            assert answer.status_code == status, (path, num_words)


def test_a_text_without_known_tokens_is_rejected(serving, encoder) -> None:
    client = serving({"table": static_embedding_model(encoder, 8)})
    assert client.post("/embed", json={"inputs": "red"}).status_code == 200
    for path, key in (("/embed", "inputs"), ("/v1/embeddings", "input")):
        answer = client.post(path, json={key: ["red", ""]})
        assert answer.status_code == 422
        assert "text 2 has no token that table knows" in message(answer)


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b'{"inputs": "a"', JSON, 400),
        (b'{"inputs": "a"}', {"Content-Type": "text/plain"}, 422),
        (b"", JSON, 422),
        (b"\xff\xfe\x00", JSON, 400),
        (b"[" * 4000, JSON, 400),
        (b'{"inputs": NaN}', JSON, 422),
        (b'{"inputs": "\\ud800"}', JSON, 200),
    ],
)
def test_invalid_bodies_are_rejected(serving, content: bytes, headers: dict, status: int) -> None:
    answer = serving(max_body_bytes=4096).post("/embed", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert message(answer)


NUM_CHARACTERS = 2**24
"""Characters of a body."""


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (
            "/embed",
            {"inputs": "a", "model": "a " * (NUM_CHARACTERS // 2)},
            "there is no model 'a a a",
        ),
        ("/embed", {"inputs": "a", "b" * NUM_CHARACTERS: 1}, "(known: dimensions, inputs, model, "),
        (
            "/embed",
            {"inputs": "a", "truncate": "b" * NUM_CHARACTERS},
            "must be true or false, not 'bbb",
        ),
        ("/embed", {"inputs": ["a", *[1] * (NUM_CHARACTERS // 16)]}, "inputs.1: must be text"),
        ("/rerank", {"query": "a", "texts": [1] * (NUM_CHARACTERS // 16)}, "texts.0: must be text"),
        ("/answer", {"inputs": [{}] * (NUM_CHARACTERS // 16)}, "inputs.0.question: is missing"),
    ],
)
def test_large_errors_are_reported_quickly(serving, path: str, body: Any, text: str) -> None:
    client, content = serving(max_body_bytes=2 * NUM_CHARACTERS), json.dumps(body)
    start = time.monotonic()
    answer = client.post(path, content=content, headers=JSON)
    assert time.monotonic() - start < 1.5
    assert answer.status_code in (404, 422)
    assert text in message(answer)


LONE_SURROGATE = "red \ud800 bird"
"""A text with a lone surrogate, which JSON can hold but UTF-8 cannot encode."""


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/embed", {"inputs": LONE_SURROGATE}, 200),
        ("/v1/embeddings", {"input": LONE_SURROGATE, "user": LONE_SURROGATE}, 200),
        ("/predict", {"inputs": LONE_SURROGATE}, 200),
        ("/rerank", {"query": LONE_SURROGATE, "texts": [LONE_SURROGATE]}, 200),
        ("/fill-mask", {"inputs": f"[MASK] {LONE_SURROGATE}"}, 200),
        ("/explore", {"text": LONE_SURROGATE}, 200),
        ("/answer", {"inputs": [{"question": LONE_SURROGATE, "text": "red"}]}, 200),
        ("/answer", {"inputs": [{"question": "red", "text": LONE_SURROGATE}]}, 422),
        ("/tag", {"inputs": LONE_SURROGATE}, 422),
        ("/tag", {"inputs": ["red", LONE_SURROGATE]}, 422),
        ("/rerank", {"query": "red", "texts": [LONE_SURROGATE], "return_text": True}, 422),
        ("/fill-mask", {"inputs": LONE_SURROGATE}, 400),
        ("/embed", {"inputs": "red", "model": LONE_SURROGATE}, 404),
        ("/v1/embeddings", {"input": "red", "model": LONE_SURROGATE}, 404),
        ("/embed", {"inputs": "red", LONE_SURROGATE: 1}, 422),
        ("/embed", {"inputs": "red", "truncation_direction": LONE_SURROGATE}, 422),
    ],
)
def test_lone_surrogates_are_read_but_not_returned(
    everything, path: str, body: Any, status: int
) -> None:
    answer = everything.post(path, content=json.dumps(body), headers=JSON)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert message(answer)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def everything(serving, encoder, task_models):
    return serving({"encoder": encoder, **task_models})


def test_no_body_is_an_internal_error(everything) -> None:
    inputs = ["inputs", "input", "query", "texts", "text"]
    options = ["model", "truncate", "top_k", "dimensions", "prompt_name"]
    keys = st.sampled_from([*inputs, *options])
    paths = st.sampled_from(
        ["/embed", "/v1/embeddings", "/predict", "/rerank", "/fill-mask", "/tag", "/answer"]
    )

    @given(paths, st.dictionaries(keys, JUNK, max_size=4) | JUNK)
    def post(path: str, body: Any) -> None:
        answer = everything.post(path, content=json.dumps(body), headers=JSON)
        assert answer.status_code in (200, 400, 404, 413, 422), (path, body, answer.text)

    post()


def test_api_keys_are_required(serving) -> None:
    client = serving(api_keys=frozenset({KEY, OTHER}))
    content = {"json": {"inputs": "a"}}
    for headers in ({}, {"Authorization": f"Bearer {KEY}x"}, {"Authorization": f"Basic {KEY}"}):
        response = client.post("/embed", headers=headers, **content)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
    for path in ("/v1/models", "/metrics"):
        assert client.get(path).status_code == 401
    for key in (KEY, OTHER):
        headers = {"Authorization": f"Bearer {key}"}
        assert client.post("/embed", headers=headers, **content).status_code == 200
    for path in ("/", "/health", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_all_methods_except_reading_public_pages_need_a_key(serving) -> None:
    client = serving(api_keys=frozenset({KEY}))
    routes = iter_route_contexts(client.app.routes)
    endpoints = {(method, r.path) for r in routes for method in r.methods - {"GET", "HEAD"}}
    assert {("POST", "/"), ("POST", "/embed"), ("POST", "/explore")} <= endpoints
    endpoints |= {(m, path) for m in ("PUT", "DELETE", "OPTIONS") for path in PUBLIC_PATHS}
    for method, path in endpoints:
        answer = client.request(method, path, json={"inputs": "a"})
        assert answer.status_code == 401, (method, path)


def test_api_keys_are_not_logged(serving, caplog) -> None:
    from bertwright.serving.settings import ServingSettings

    assert KEY not in repr(ServingSettings(api_keys=frozenset({KEY})))
    with caplog.at_level(logging.DEBUG):
        client = serving(api_keys=frozenset({KEY}))
        client.post("/embed", json={"inputs": "a"}, headers={"Authorization": f"Bearer {KEY}"})
    assert KEY not in caplog.text


def test_an_internal_error_has_an_id_in_the_log(serving, encoder, monkeypatch, caplog) -> None:
    client = serving()

    def fail(*_: Any) -> None:
        raise OSError(2, "No such file", "/secret/folder/model.safetensors")

    monkeypatch.setattr(encoder, "embed_ids", fail)
    answer = client.post("/embed", json={"inputs": "a"})
    assert answer.status_code == 500
    match = re.fullmatch(r"internal error ([0-9a-f]{16})", message(answer))
    assert match is not None
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert match[1] in caplog.text
    assert "/secret/folder" in caplog.text


def bodies(path: str) -> dict[str, bytes]:
    """Return JSON bodies that no endpoint accepts."""
    key = b"text" if path == "/explore" else b"input" if path.startswith("/v1") else b"inputs"
    return {
        "deep": b'{"%s": ' % key + b"[" * 100_000,
        "as deep as Python reads": b'{"%s": %s}' % (key, b"[" * 900 + b"]" * 900),
        "deep objects": b'{"%s": %s1%s}' % (key, b'{"a":' * 400, b"}" * 400),
        "digits": b'{"%s": %s}' % (key, b"9" * 3000),
        "number": b'{"%s": "[MASK] a", "top_k": %s}' % (key, b"9" * 3000),
        "more digits": b'{"%s": %s}' % (key, b"9" * 4000),
        "exponent": b'{"%s": "a", "top_k": 1e999}' % key,
        "not a number": b'{"%s": NaN, "top_k": -Infinity}' % key,
        "no text": b'{"%s": [1.5, NaN, null, {}]}' % key,
        "no utf-8": b'{"%s": "\xff"}' % key,
        "two values": b"{} {}",
        "keys": b'{"%s": "a", "%s": "b", "\\ud800": 1}' % (key, key),
    }


@pytest.mark.parametrize("case", bodies(""))
@pytest.mark.parametrize(
    "path",
    [
        *("/embed", "/", "/v1/embeddings", "/predict", "/rerank", "/fill-mask", "/tag", "/answer"),
        "/explore",
    ],
)
def test_no_json_is_an_internal_error(everything, path: str, case: str) -> None:
    answer = everything.post(path, content=bodies(path)[case], headers=JSON)
    assert answer.status_code in (400, 413, 422), answer.text
    assert 0 < len(message(answer)) <= 300


def test_a_tokenizer_error_is_reported(serving) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    backend = library.Tokenizer(
        library.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = library.pre_tokenizers.Split(
        library.Regex("((ab)+(ab)+)+$"), "isolated"
    )
    tokenizer = Tokenizer(backend)
    model = TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer, "float32")
    client = serving({"encoder": model})
    bodies_by_path = {
        "/embed": {"inputs": ["a", "ab" * 40 + "c"]},
        "/v1/embeddings": {"input": "ab" * 40 + "c"},
        "/fill-mask": {"inputs": "[MASK] " + "ab" * 40 + "c"},
        "/explore": {"text": "ab" * 40 + "c"},
    }
    for path, body in bodies_by_path.items():
        answer = client.post(path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert "the tokenizer cannot encode a text" in message(answer)
    assert client.post("/embed", json={"inputs": "a"}).status_code == 200
