"""What is answered over HTTP is what the same model says offline."""

import asyncio
import base64
import re

import numpy as np
import pytest

from bertwright.interop.onnx.reading import load_onnx
from bertwright.interop.onnx.writing import export_onnx
from bertwright.serving.refusals import OpenAIRefused, Refused
from bertwright.tasks.formats.examples import Example, Question
from bertwright.text.tokenizers import Tokenizer
from small_tasks import TEXTS

ODD = ["", "red", "The [MASK] bird", "unbelievably " * 20, *TEXTS[:5]]
"""Texts of very different lengths."""


def vectors_close(found: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.array(found), expected, atol=1e-4)


@pytest.mark.parametrize("normalise", [True, False])
def test_embed_is_embed(serving, encoder, normalise: bool) -> None:
    answer = serving().post("/embed", json={"inputs": ODD, "normalize": normalise})
    vectors_close(answer.json(), encoder.embed(ODD, normalise=normalise))


def test_one_text_is_a_list_of_one(serving, encoder) -> None:
    answer = serving().post("/embed", json={"inputs": "red"})
    vectors_close(answer.json(), encoder.embed("red", normalise=True))


def test_a_long_text_is_cut_where_that_is_asked_for(serving, encoder) -> None:
    long = "bird " * 600
    answer = serving().post("/embed", json={"inputs": long, "truncate": True})
    vectors_close(answer.json(), encoder.embed(long, normalise=True))


@pytest.mark.parametrize(
    ("path", "asked", "nulls"),
    [
        ("/embed", {"inputs": "red"}, ["truncate", "normalize", "prompt_name", "dimensions"]),
        ("/embed", {"inputs": "red"}, ["model", "truncation_direction"]),
        ("/v1/embeddings", {"input": "red"}, ["encoding_format", "dimensions", "user"]),
        ("/fill-mask", {"inputs": "[MASK]"}, ["top_k", "model"]),
    ],
)
def test_null_is_nothing_said(serving, path: str, asked: dict, nulls: list[str]) -> None:
    client = serving()
    answer = client.post(path, json=asked | dict.fromkeys(nulls))
    assert answer.status_code == 200, answer.text
    assert answer.json() == client.post(path, json=asked).json()


def test_openai_embeddings_have_length_one_and_are_counted(serving, encoder) -> None:
    answer = serving().post("/v1/embeddings", json={"input": ODD, "model": "encoder"}).json()
    vectors_close([one["embedding"] for one in answer["data"]], encoder.embed(ODD, normalise=True))
    assert [one["index"] for one in answer["data"]] == list(range(len(ODD)))
    num_tokens = sum(len(ids) + 2 for ids in encoder.tokenizer.encode_batch(ODD))
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert answer["model"] == "encoder"


def test_base64_is_the_same_numbers(serving, encoder) -> None:
    asked = {"input": ODD, "encoding_format": "base64"}
    answer = serving().post("/v1/embeddings", json=asked).json()
    found = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in answer["data"]]
    vectors_close(found, encoder.embed(ODD, normalise=True))


def test_fewer_dimensions_are_the_first_ones_of_length_one(serving, encoder) -> None:
    answer = serving().post("/v1/embeddings", json={"input": "red bird", "dimensions": 7}).json()
    first = encoder.embed("red bird")[:, :7]
    vectors_close(answer["data"][0]["embedding"], (first / np.linalg.norm(first))[0])


def test_fill_mask_is_fill_mask(serving, encoder) -> None:
    texts = ["The [MASK] bird is [MASK]", "[MASK]"]
    answer = serving().post("/fill-mask", json={"inputs": texts, "top_k": 3}).json()
    for text, places in zip(texts, answer, strict=True):
        expected = encoder.fill_mask(text, 3)
        assert [[g["piece"] for g in p] for p in places] == [[g.piece for g in p] for p in expected]
        said = [[g["probability"] for g in p] for p in places]
        vectors_close(said, np.array([[g.probability for g in p] for p in expected]))


@pytest.mark.parametrize("name", ["judge", "topics"])
def test_predict_has_all_labels_the_likeliest_first(serving, solvers, name: str) -> None:
    model = solvers[name]
    answer = serving({name: model}).post("/predict", json={"inputs": [[t] for t in ODD]}).json()
    for said, prediction in zip(answer, model.predict([Example(t) for t in ODD]), strict=True):
        scores = {one["label"]: one["score"] for one in said}
        assert scores == pytest.approx(prediction.probabilities, abs=1e-4)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)


def test_raw_scores_become_the_probabilities(serving, solvers) -> None:
    client = serving({"judge": solvers["judge"]})
    raw = client.post("/predict", json={"inputs": "red bird", "raw_scores": True}).json()
    powers = np.exp([one["score"] for one in raw])
    said = client.post("/predict", json={"inputs": "red bird"}).json()
    vectors_close([one["score"] for one in said], powers / powers.sum())
    assert [one["label"] for one in said] == [one["label"] for one in raw]


@pytest.mark.parametrize(("name", "label"), [("number", "number"), ("near", "closeness")])
def test_a_number_is_said_by_its_kind(serving, solvers, name: str, label: str) -> None:
    model = solvers[name]
    texts = ["red bird", "red tree"][: 1 if name == "number" else 2]
    answer = serving({name: model}).post("/predict", json={"inputs": texts})
    (prediction,) = model.predict([Example(*texts)])
    assert answer.json() == [{"label": label, "score": pytest.approx(prediction.answer, abs=1e-4)}]


def test_pairs_and_lists_of_pairs(serving, solvers) -> None:
    pair, model = ["red bird", "blue tree"], solvers["pairs"]
    client = serving({"pairs": model})
    alone = client.post("/predict", json={"inputs": pair}).json()
    (prediction,) = model.predict([Example(*pair)])
    assert {one["label"]: one["score"] for one in alone} == pytest.approx(
        prediction.probabilities, abs=1e-4
    )
    assert client.post("/predict", json={"inputs": [pair]}).json() == [alone]


def test_rerank_is_in_the_order_of_relevance(serving, solvers) -> None:
    model = solvers["rank"]
    client = serving({"rank": model})
    asked = {"query": "red bird", "texts": TEXTS[:9]}
    ranks = client.post("/rerank", json=asked).json()
    predictions = model.predict([Example("red bird", text) for text in TEXTS[:9]])
    said = {rank["index"]: rank["score"] for rank in ranks}
    assert said == pytest.approx({n: p.answer for n, p in enumerate(predictions)}, abs=1e-4)
    assert [r["score"] for r in ranks] == sorted((r["score"] for r in ranks), reverse=True)
    assert set(ranks[0]) == {"index", "score"}
    raw = client.post("/rerank", json={**asked, "raw_scores": True, "return_text": True}).json()
    assert [rank["text"] for rank in raw] == [TEXTS[rank["index"]] for rank in ranks]
    vectors_close([1 / (1 + np.exp(-r["score"])) for r in raw], [r["score"] for r in ranks])


def test_tag_says_a_tag_for_each_word(serving, solvers) -> None:
    model = solvers["tagger"]
    texts = ["The red bird", "", "remarkably large"]
    answer = serving({"tagger": model}).post("/tag", json={"inputs": texts}).json()
    for text, said, prediction in zip(texts, answer, model.predict(texts), strict=True):
        assert [one["word"] for one in said] == text.split()
        assert tuple(one["tag"] for one in said) == prediction.answer
        vectors_close([one["probability"] for one in said], prediction.probabilities)


def test_answer_says_a_part_of_the_text(serving, solvers) -> None:
    model = solvers["reader"]
    asked = [{"question": "The bird is", "text": text} for text in (TEXTS[0], " ".join(TEXTS))]
    answer = serving({"reader": model}).post("/answer", json={"inputs": asked}).json()
    predictions = model.predict([Question(**each) for each in asked])
    assert [one["answer"] for one in answer] == [p.answer for p in predictions]
    vectors_close([one["probability"] for one in answer], [p.probabilities for p in predictions])


def test_a_model_is_asked_by_its_name_else_the_first_that_can(serving, encoder, solvers) -> None:
    client = serving({"judge": solvers["judge"], "encoder": encoder, "number": solvers["number"]})
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == [
        "judge",
        "encoder",
        "number",
    ]
    assert len(client.post("/predict", json={"inputs": "a"}).json()) == 2
    assert len(client.post("/predict", json={"inputs": "a", "model": "number"}).json()) == 1
    assert client.post("/fill-mask", json={"inputs": "[MASK]"}).status_code == 200
    lacking = client.post("/fill-mask", json={"inputs": "[MASK]", "model": "judge"})
    assert lacking.status_code == 400
    assert "which judge is not: ask encoder" in lacking.json()["error"]
    unknown = client.post("/v1/embeddings", json={"input": "a", "model": "encodr"})
    assert unknown.status_code == 404
    assert "did you mean 'encoder'?" in unknown.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/predict", {"inputs": "a"}),
        ("/rerank", {"query": "a", "texts": ["b"]}),
        ("/tag", {"inputs": "a"}),
        ("/answer", {"inputs": [{"question": "a", "text": "b"}]}),
    ],
)
def test_what_no_model_can_is_said_in_a_sentence(serving, path: str, asked: dict) -> None:
    answer = serving().post(path, json=asked)
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("no model here can do that")


def test_a_model_that_is_named_and_cannot_is_a_mistake(serving) -> None:
    answer = serving().post("/rerank", json={"query": "a", "texts": ["b"], "model": "encoder"})
    assert answer.status_code == 400
    assert "which encoder is not: ask another server" in answer.json()["error"]


def test_a_model_is_told_by_its_name(serving) -> None:
    client = serving()
    assert client.get("/v1/models/encoder").json() == client.get("/v1/models").json()["data"][0]
    unknown = client.get("/v1/models/encodr")
    assert unknown.status_code == 404
    assert "did you mean 'encoder'?" in unknown.json()["error"]["message"]


def test_a_causal_model_fills_no_places(serving) -> None:
    from bertwright.analysis.planted.models import small_subject

    model = small_subject("gpt-2").text_model
    model.model.float()
    client = serving({"gpt": model})
    assert "fill-mask" not in client.get("/v1/models").json()["data"][0]["abilities"]
    assert client.post("/fill-mask", json={"inputs": "[MASK]"}).status_code == 404


def test_a_graph_is_not_looked_into_and_stands_in_nobodys_way(serving, encoder, tmp_path) -> None:
    export_onnx(encoder, tmp_path / "graph")
    graph = load_onnx(tmp_path / "graph", threads=1)
    client = serving({"graph": graph, "encoder": encoder})
    listed = {one["id"]: one["abilities"] for one in client.get("/v1/models").json()["data"]}
    asked: dict[str, dict] = {
        "embed": {"inputs": "The red bird"},
        "explore": {"text": "The red bird"},
        "fill-mask": {"inputs": "The [MASK] bird"},
    }
    for name, abilities in listed.items():
        for ability, body in asked.items():
            status = client.post(f"/{ability}", json={**body, "model": name}).status_code
            assert status == (200 if ability in abilities else 400), (name, ability)
    for ability, body in asked.items():
        assert client.post(f"/{ability}", json=body).status_code == 200
    assert listed["graph"] == ["embed"]


def test_everything_is_described(serving) -> None:
    client = serving()
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) >= {"/v1/embeddings", "/v1/models", "/embed", "/predict", "/rerank"}
    assert set(paths) >= {"/fill-mask", "/tag", "/answer", "/explore", "/health", "/metrics"}
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_name_no_other_server(serving, path: str) -> None:
    page = serving().get(path)
    assert page.headers["content-type"].startswith("text/html")
    assert not re.findall(r"(?:https?:)?//[a-z]|\bsrc=|@import|<link", page.text)
    assert set(re.findall(r'href="(.*?)"', page.text)) <= {"docs", "openapi.json"}
    assert set(re.findall(r'fetch\("(.*?)"', page.text)) <= {"explore", "openapi.json"}


def test_refusals_are_described_as_they_are(serving) -> None:
    client = serving(text_tokens=8)
    described = client.get("/openapi.json").json()
    for path, asked, status in [
        ("/embed", {"inputs": "red " * 9}, 413),
        ("/embed", {"inputs": 5}, 422),
        ("/embed", {"inputs": "a", "model": "no"}, 404),
        ("/v1/embeddings", {"input": 5}, 422),
        ("/explore", {"text": "a", "model": "no"}, 404),
    ]:
        answer = client.post(path, json=asked)
        assert answer.status_code == status
        told = described["paths"][path]["post"]["responses"][str(status)]
        name = told["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        {"Refused": Refused, "OpenAIRefused": OpenAIRefused}[name].model_validate(answer.json())
        assert set(answer.json()) == set(described["components"]["schemas"][name]["properties"])
    every = described["paths"]["/embed"]["post"]["responses"]
    assert set(every) == {str(s) for s in (200, 400, 401, 404, 408, 413, 422, 429, 500, 503, 504)}
    assert set(described["paths"]["/health"]["get"]["responses"]) == {"200", "500", "503"}
    assert "HTTPValidationError" not in str(described)


def test_metrics_count_requests_and_batches(serving) -> None:
    client = serving()
    client.post("/embed", json={"inputs": ["red", "red bird"]})
    client.post("/embed", json={"inputs": 5})
    client.get("/made/up")
    lines = client.get("/metrics").text.splitlines()
    for line in (
        'bertwright_requests_total{path="/embed",status="200"} 1.0',
        'bertwright_requests_total{path="/embed",status="422"} 1.0',
        'bertwright_requests_total{path="other",status="404"} 1.0',
        'bertwright_request_seconds_count{path="/embed"} 2.0',
        'bertwright_batch_rows_sum{model="encoder"} 2.0',
        'bertwright_tokens_total{model="encoder"} 7.0',
        'bertwright_queue_tokens{model="encoder"} 0.0',
    ):
        assert line in lines


def test_the_page_shows_the_text(serving, solvers) -> None:
    client = serving()
    assert "<form>" in client.get("/").text
    page = client.post("/explore", json={"text": "The red bird"})
    assert page.headers["content-type"].startswith("text/html")
    assert '"bird"' in page.text
    long = client.post("/explore", json={"text": "bird " * 70})
    assert long.status_code == 413
    assert "64 are shown" in long.json()["error"]
    assert client.post("/explore", json={"text": " "}).status_code == 422


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/embed", {"inputs": "a"}),
        ("/explore", {"text": "a"}),
        ("/fill-mask", {"inputs": "[MASK]"}),
    ],
)
def test_no_text_becomes_pieces_where_requests_are_taken(
    serving, monkeypatch: pytest.MonkeyPatch, path: str, asked: dict
) -> None:
    looping: list[bool] = []
    for name in ("encode_batch", "encode_hiding"):
        method = getattr(Tokenizer, name)

        def noted(*given, method=method):
            looping.append(asyncio._get_running_loop() is not None)
            return method(*given)

        monkeypatch.setattr(Tokenizer, name, noted)
    assert serving().post(path, json=asked).status_code == 200
    assert looping
    assert not any(looping)
