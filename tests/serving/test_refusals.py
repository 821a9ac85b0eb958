"""What is refused, is refused in a sentence, and costs nothing."""

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

from bertwright.compression.static_table import static_table
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.serving import desk
from bertwright.serving.door import OPEN
from bertwright.text.tokenizers import Tokenizer
from recipes_at_toy_size import toy

JSON = {"Content-Type": "application/json"}

KEY, OTHER = "a-key-that-is-long-enough", "another-key-that-is-long"


def sentence(answer: Any) -> str:
    said = answer.json()["error"]
    return said["message"] if isinstance(said, dict) else said


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/embed", {"inputs": ["a"] * 9}, 413, "9 texts, and 8 are taken at once"),
        ("/embed", {"inputs": "bird " * 30}, 413, "text 1 has 32 tokens, and 20 are read"),
        ("/fill-mask", {"inputs": ["[MASK]"] * 9}, 413, "9 texts"),
        ("/fill-mask", {"inputs": ["[MASK]", "[MASK] " * 19]}, 413, "text 2 has 21 tokens, and 20"),
        (
            "/fill-mask",
            {"inputs": ["[MASK] " * 15] * 6, "top_k": 100},
            413,
            "100 pieces in each of 90 places, and 8192 are named at once: hide fewer, or say",
        ),
        ("/v1/embeddings", {"input": ["bird " * 18] * 8}, 413, "160 tokens, and 100 are taken"),
        ("/embed", {"inputs": "a" * 6000}, 413, "more than 4096 bytes"),
        ("/embed", {"inputs": [1, 2]}, 422, "name other pieces in every vocabulary: send texts"),
        ("/v1/embeddings", {"input": [[1, 2]]}, 422, "send texts"),
        ("/v1/embeddings", {"input": "a", "dimensions": 33}, 422, "has 32, ask for fewer"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, 422, "must be 1 or more"),
        ("/embed", {"input": "a"}, 422, "has no key 'input': did you mean 'inputs'?"),
        ("/embed", {"inputs": []}, 422, "must hold 1 or more"),
        ("/embed", {"inputs": ["a", None]}, 422, "inputs.1: must be text, not None"),
        ("/embed", ["a"], 422, "must be a JSON object"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, 422, "must be 'right'"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "a pair of texts, or a list of lists"),
        ("/fill-mask", {"inputs": "a"}, 400, "hides nothing: write [MASK]"),
        ("/fill-mask", {"inputs": "[MASK]", "top_k": 0}, 422, "top_k: must be 1 or more"),
        ("/fill-mask", {"inputs": "[MASK]", "top_k": "3"}, 422, "top_k: must be a whole number"),
        ("/fill-mask", {"inputs": "[MASK]", "top_k": True}, 422, "top_k: must be a whole number"),
        ("/embed", {"inputs": "a", "truncate": "yes"}, 422, "truncate: must be true or false"),
        ("/explore", {"text": " "}, 422, "there is none: type some words"),
        ("/explore", {"text": "\tfoo"}, 400, "no text has a word that encoder reads"),
        ("/explore", {"text": "\x07\x08"}, 400, "no text has a word that encoder reads"),
    ],
)
def test_the_sentence_says_what_is_wrong(
    serving, path: str, body: Any, status: int, words: str
) -> None:
    limits = {"num_texts": 8, "text_tokens": 20, "queue_tokens": 100, "body_bytes": 4096}
    answer = serving(**limits).post(path, json=body)
    assert answer.status_code == status, answer.text
    assert words in sentence(answer)
    assert "\n" not in sentence(answer)
    assert len(sentence(answer)) <= 300


def test_what_is_read_is_the_same_for_every_question(serving, encoder) -> None:
    client = serving(text_tokens=9)
    for path, text in (("/embed", "bird "), ("/fill-mask", "[MASK] ")):
        assert client.post(path, json={"inputs": text * 7}).status_code == 200
        assert client.post(path, json={"inputs": text * 8}).status_code == 413
    long = encoder.model.encoder.longest
    for path, text in (("/embed", "bird"), ("/fill-mask", "[MASK]")):
        answer = serving().post(path, json={"inputs": text + " bird" * long})
        assert answer.status_code == 413
        assert f"and {long} are read: shorten it" in sentence(answer)


def test_few_places_are_answered_at_once(serving, encoder, monkeypatch) -> None:
    monkeypatch.setattr(desk, "PLACES", 4)
    monkeypatch.setattr(desk, "GUESSES", 20)
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
    ("name", "path", "body", "words"),
    [
        ("pairs", "/predict", {"inputs": "a"}, "asks for pairs: write [text, text]"),
        ("judge", "/predict", {"inputs": ["a", "b"]}, "asks for no pairs: write [[text], [text]]"),
        ("judge", "/predict", {"inputs": [["a"], ["a", "b"]]}, "asks for no pairs"),
        ("judge", "/predict", {"inputs": "bird " * 600}, "text 1 has 90 tokens more than are read"),
        (
            "reader",
            "/answer",
            {"inputs": [{"question": "bird " * 70, "text": "a"}]},
            "question 1 has 6 tokens more than are read",
        ),
        ("reader", "/answer", {"inputs": [{"question": "a"}]}, "inputs.0.text: is missing"),
        (
            "reader",
            "/answer",
            {"inputs": [{"question": "a", "text": "bird " * 9000}]},
            "tokens in all its windows, and 8192 are read",
        ),
    ],
)
def test_of_a_task_too(serving, solvers, name: str, path: str, body: Any, words: str) -> None:
    answer = serving({name: solvers[name]}).post(path, json=body)
    assert answer.status_code in (413, 422)
    assert words in sentence(answer)


def test_a_long_question_is_cut_where_that_is_asked_for(serving, solvers) -> None:
    asked = {"inputs": [{"question": "bird " * 70, "text": "The red bird"}], "truncate": True}
    assert serving({"reader": solvers["reader"]}).post("/answer", json=asked).status_code == 200


@pytest.mark.parametrize("text_tokens", [3, 20, 600])
@pytest.mark.parametrize("name", ["judge", "pairs", "topics", "number", "near", "rank"])
def test_what_is_to_be_cut_is_read_as_far_as_any_text_is(
    serving, solvers, name: str, text_tokens: int
) -> None:
    long = "bird " * 700
    pair = name in ("pairs", "near", "rank")
    inputs = [[long, f"red {long}"]] if pair else [[long]]
    client = serving({name: solvers[name]}, text_tokens=text_tokens)
    assert client.post("/predict", json={"inputs": inputs}).status_code == 413
    answer = client.post("/predict", json={"inputs": inputs, "truncate": True})
    assert answer.status_code == 200, answer.text
    if name == "rank":
        asked = {"query": "red", "texts": [long, "red bird"], "truncate": True}
        assert client.post("/rerank", json=asked).status_code == 200


def test_a_page_is_shown_wherever_its_text_is_taken(serving) -> None:
    client = serving(queue_tokens=20)
    for words, status in ((18, 200), (19, 413)):
        for path, key in (("/explore", "text"), ("/embed", "inputs")):
            answer = client.post(path, json={key: "bird " * words})
            assert answer.status_code == status, (path, words)


def test_a_text_of_nothing_has_no_vector(serving, encoder) -> None:
    client = serving({"table": static_table(encoder, 8)})
    assert client.post("/embed", json={"inputs": "red"}).status_code == 200
    for path, key in (("/embed", "inputs"), ("/v1/embeddings", "input")):
        answer = client.post(path, json={key: ["red", ""]})
        assert answer.status_code == 422
        assert "text 2 holds nothing that table knows" in sentence(answer)


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
def test_garbage_is_answered(serving, content: bytes, headers: dict, status: int) -> None:
    answer = serving(body_bytes=4096).post("/embed", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert sentence(answer)


MUCH = 2**24
"""Characters of a body."""


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (
            "/embed",
            {"inputs": "a", "model": "a " * (MUCH // 2)},
            "there is no model 'a a a",
        ),
        ("/embed", {"inputs": "a", "b" * MUCH: 1}, "(known: inputs, model, normalize, "),
        ("/embed", {"inputs": "a", "truncate": "b" * MUCH}, "must be true or false, not 'bbb"),
        ("/embed", {"inputs": ["a", *[1] * (MUCH // 16)]}, "inputs.1: must be text"),
        ("/rerank", {"query": "a", "texts": [1] * (MUCH // 16)}, "texts.0: must be text"),
        ("/answer", {"inputs": [{}] * (MUCH // 16)}, "inputs.0.question: is missing"),
    ],
)
def test_however_much_is_wrong_it_is_soon_said(serving, path: str, body: Any, words: str) -> None:
    client, content = serving(body_bytes=2 * MUCH), json.dumps(body)
    began = time.monotonic()
    answer = client.post(path, content=content, headers=JSON)
    assert time.monotonic() - began < 1.5
    assert answer.status_code in (404, 422)
    assert words in sentence(answer)


HALF = "red \ud800 bird"
"""With half of a surrogate pair: JSON spells it, and nothing writes it."""


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/embed", {"inputs": HALF}, 200),
        ("/v1/embeddings", {"input": HALF, "user": HALF}, 200),
        ("/predict", {"inputs": HALF}, 200),
        ("/rerank", {"query": HALF, "texts": [HALF]}, 200),
        ("/fill-mask", {"inputs": f"[MASK] {HALF}"}, 200),
        ("/explore", {"text": HALF}, 200),
        ("/answer", {"inputs": [{"question": HALF, "text": "red"}]}, 200),
        ("/answer", {"inputs": [{"question": "red", "text": HALF}]}, 422),
        ("/tag", {"inputs": HALF}, 422),
        ("/tag", {"inputs": ["red", HALF]}, 422),
        ("/rerank", {"query": "red", "texts": [HALF], "return_text": True}, 422),
        ("/fill-mask", {"inputs": HALF}, 400),
        ("/embed", {"inputs": "red", "model": HALF}, 404),
        ("/v1/embeddings", {"input": "red", "model": HALF}, 404),
        ("/embed", {"inputs": "red", HALF: 1}, 422),
        ("/embed", {"inputs": "red", "truncation_direction": HALF}, 422),
    ],
)
def test_half_a_character_is_read_but_never_repeated(
    everything, path: str, body: Any, status: int
) -> None:
    answer = everything.post(path, content=json.dumps(body), headers=JSON)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert sentence(answer)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def everything(serving, encoder, solvers):
    return serving({"encoder": encoder, **solvers})


def test_no_body_is_an_internal_error(everything) -> None:
    keys = st.sampled_from(
        ["inputs", "input", "query", "texts", "text", "model", "truncate", "top_k", "dimensions"]
    )
    paths = st.sampled_from(
        ["/embed", "/v1/embeddings", "/predict", "/rerank", "/fill-mask", "/tag", "/answer"]
    )

    @given(paths, st.dictionaries(keys, JUNK, max_size=4) | JUNK)
    def ask(path: str, body: Any) -> None:
        answer = everything.post(path, content=json.dumps(body), headers=JSON)
        assert answer.status_code in (200, 400, 404, 413, 422), (path, body, answer.text)

    ask()


def test_keys_are_asked_for(serving) -> None:
    client = serving(api_keys=frozenset({KEY, OTHER}))
    asked = {"json": {"inputs": "a"}}
    for headers in ({}, {"Authorization": f"Bearer {KEY}x"}, {"Authorization": f"Basic {KEY}"}):
        refusal = client.post("/embed", headers=headers, **asked)
        assert refusal.status_code == 401
        assert refusal.headers["www-authenticate"] == "Bearer"
    for path in ("/v1/models", "/metrics"):
        assert client.get(path).status_code == 401
    for key in (KEY, OTHER):
        given_key = {"Authorization": f"Bearer {key}"}
        assert client.post("/embed", headers=given_key, **asked).status_code == 200
    for path in ("/", "/health", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_whatever_is_not_only_shown_needs_a_key(serving) -> None:
    client = serving(api_keys=frozenset({KEY}))
    routes = iter_route_contexts(client.app.routes)
    asked = {(method, own.path) for own in routes for method in own.methods - {"GET", "HEAD"}}
    assert {("POST", "/"), ("POST", "/embed"), ("POST", "/explore")} <= asked
    asked |= {(method, path) for method in ("PUT", "DELETE", "OPTIONS") for path in OPEN}
    for method, path in asked:
        answer = client.request(method, path, json={"inputs": "a"})
        assert answer.status_code == 401, (method, path)


def test_keys_are_told_to_nobody(serving, caplog) -> None:
    from bertwright.serving.settings import Settings

    assert KEY not in repr(Settings(api_keys=frozenset({KEY})))
    with caplog.at_level(logging.DEBUG):
        client = serving(api_keys=frozenset({KEY}))
        client.post("/embed", json={"inputs": "a"}, headers={"Authorization": f"Bearer {KEY}"})
    assert KEY not in caplog.text


def test_an_internal_error_is_a_number_that_is_in_the_log(
    serving, encoder, monkeypatch, caplog
) -> None:
    client = serving()

    def fail(*_: Any) -> None:
        raise OSError(2, "No such file", "/secret/place/model.safetensors")

    monkeypatch.setattr(encoder, "embed_rows", fail)
    answer = client.post("/embed", json={"inputs": "a"})
    assert answer.status_code == 500
    found = re.fullmatch(r"internal error ([0-9a-f]{16})", sentence(answer))
    assert found is not None
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert found[1] in caplog.text
    assert "/secret/place" in caplog.text


def bodies(path: str) -> dict[str, bytes]:
    """JSON that is more than any endpoint reads."""
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
    assert 0 < len(sentence(answer)) <= 300


def test_a_tokenizer_that_cannot_read_a_text_is_one_sentence(serving) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    backend = library.Tokenizer(
        library.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = library.pre_tokenizers.Split(
        library.Regex("((ab)+(ab)+)+$"), "isolated"
    )
    tokenizer = Tokenizer(backend)
    model = TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer, "float32")
    client = serving({"encoder": model})
    asked = {
        "/embed": {"inputs": ["a", "ab" * 40 + "c"]},
        "/v1/embeddings": {"input": "ab" * 40 + "c"},
        "/fill-mask": {"inputs": "[MASK] " + "ab" * 40 + "c"},
        "/explore": {"text": "ab" * 40 + "c"},
    }
    for path, body in asked.items():
        answer = client.post(path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert "the tokenizer cannot read a text" in sentence(answer)
    assert client.post("/embed", json={"inputs": "a"}).status_code == 200
