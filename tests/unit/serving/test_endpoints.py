"""HTTP responses equal the results of the same model offline."""

import asyncio
import base64
from copy import deepcopy

import numpy as np
import pytest

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.recipes.schema import SentenceVectorSettings
from bertwright.serving.errors import ApiErrorBody, OpenAIErrorBody
from bertwright.serving.model_worker import ENDPOINT_REQUIREMENTS
from bertwright.tasks.formats.examples import Example, ExtractiveQuestion
from small_tasks import TEXTS

VARIED_TEXTS = ["", "red", "The [MASK] bird", "unbelievably " * 20, *TEXTS[:5]]
"""Texts of very different lengths."""


def assert_close(values: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.array(values), expected, atol=1e-4)


@pytest.mark.parametrize("normalise", [True, False])
def test_embed_equals_the_model(serving, encoder, normalise: bool) -> None:
    response = serving().post("/embed", json={"inputs": VARIED_TEXTS, "normalize": normalise})
    assert_close(response.json(), encoder.embed(VARIED_TEXTS, normalise=normalise))


def test_a_single_text_is_a_list_of_one(serving, encoder) -> None:
    response = serving().post("/embed", json={"inputs": "red"})
    assert_close(response.json(), encoder.embed("red", normalise=True))


def test_a_long_text_is_truncated_on_request(serving, encoder) -> None:
    long = "bird " * 600
    response = serving().post("/embed", json={"inputs": long, "truncate": True})
    assert_close(response.json(), encoder.embed(long, normalise=True))


@pytest.mark.parametrize(
    ("path", "body", "nulls"),
    [
        ("/embed", {"inputs": "red"}, ["truncate", "normalize", "prompt_name", "dimensions"]),
        ("/embed", {"inputs": "red"}, ["model", "truncation_direction"]),
        ("/v1/embeddings", {"input": "red"}, ["encoding_format", "dimensions", "user"]),
        ("/fill-mask", {"inputs": "[MASK]"}, ["top_k", "model"]),
    ],
)
def test_null_fields_are_ignored(serving, path: str, body: dict, nulls: list[str]) -> None:
    client = serving()
    response = client.post(path, json=body | dict.fromkeys(nulls))
    assert response.status_code == 200, response.text
    assert response.json() == client.post(path, json=body).json()


def test_openai_embeddings_are_normalised_and_counted(serving, encoder) -> None:
    response = (
        serving().post("/v1/embeddings", json={"input": VARIED_TEXTS, "model": "encoder"}).json()
    )
    assert_close(
        [one["embedding"] for one in response["data"]], encoder.embed(VARIED_TEXTS, normalise=True)
    )
    assert [one["index"] for one in response["data"]] == list(range(len(VARIED_TEXTS)))
    num_tokens = sum(len(ids) + 2 for ids in encoder.tokenizer.encode_batch(VARIED_TEXTS))
    assert response["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert response["model"] == "encoder"


def test_base64_encodes_the_same_numbers(serving, encoder) -> None:
    body = {"input": VARIED_TEXTS, "encoding_format": "base64"}
    response = serving().post("/v1/embeddings", json=body).json()
    vectors = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in response["data"]]
    assert_close(vectors, encoder.embed(VARIED_TEXTS, normalise=True))


def test_fewer_dimensions_are_truncated_and_normalised(serving, encoder) -> None:
    client = serving()
    response = client.post("/v1/embeddings", json={"input": "red bird", "dimensions": 7}).json()
    first = encoder.embed("red bird")[:, :7]
    normalised = first / np.linalg.norm(first)
    assert_close(response["data"][0]["embedding"], normalised[0])
    assert_close(
        client.post("/embed", json={"inputs": "red bird", "dimensions": 7}).json(), normalised
    )


def test_a_prompt_is_placed_before_each_text(serving, encoder) -> None:
    prompts = {"query": "the old tree ", "document": "a "}
    vectors = SentenceVectorSettings(prompts=prompts)
    model = deepcopy(encoder)
    model.model.recipe = model.model.recipe.model_copy(update={"vectors": vectors})
    client = serving({"encoder": model})
    for name, prompt in prompts.items():
        expected = encoder.embed([f"{prompt}{text}" for text in VARIED_TEXTS], normalise=True)
        body = {"inputs": VARIED_TEXTS, "prompt_name": name}
        assert_close(client.post("/embed", json=body).json(), expected)
        body = {"input": VARIED_TEXTS, "prompt_name": name}
        response = client.post("/v1/embeddings", json=body).json()
        assert_close([one["embedding"] for one in response["data"]], expected)
    response = client.post("/embed", json={"inputs": "red", "prompt_name": "question"})
    assert response.status_code == 422
    assert "no prompt 'question': choose query, document" in response.json()["error"]


def test_fill_mask_equals_the_model(serving, encoder) -> None:
    texts = ["The [MASK] bird is [MASK]", "[MASK]"]
    response = serving().post("/fill-mask", json={"inputs": texts, "top_k": 3}).json()
    for text, masks in zip(texts, response, strict=True):
        expected = encoder.fill_mask(text, 3)
        assert [[p["token"] for p in m] for m in masks] == [[p.token for p in m] for m in expected]
        probabilities = [[p["probability"] for p in m] for m in masks]
        assert_close(probabilities, np.array([[p.probability for p in m] for m in expected]))


@pytest.mark.parametrize("name", ["sentiment", "topics"])
def test_predict_returns_all_labels_by_probability(serving, task_models, name: str) -> None:
    model = task_models[name]
    response = (
        serving({name: model}).post("/predict", json={"inputs": [[t] for t in VARIED_TEXTS]}).json()
    )
    predictions = model.predict([Example(t) for t in VARIED_TEXTS])
    for labels, prediction in zip(response, predictions, strict=True):
        scores = {one["label"]: one["score"] for one in labels}
        assert scores == pytest.approx(prediction.probabilities, abs=1e-4)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)


def test_raw_scores_become_the_probabilities(serving, task_models) -> None:
    client = serving({"sentiment": task_models["sentiment"]})
    raw = client.post("/predict", json={"inputs": "red bird", "raw_scores": True}).json()
    exponentials = np.exp([one["score"] for one in raw])
    scores = client.post("/predict", json={"inputs": "red bird"}).json()
    assert_close([one["score"] for one in scores], exponentials / exponentials.sum())
    assert [one["label"] for one in scores] == [one["label"] for one in raw]


@pytest.mark.parametrize(("name", "label"), [("number", "number"), ("similarity", "similarity")])
def test_a_number_has_its_output_type_as_label(serving, task_models, name: str, label: str) -> None:
    model = task_models[name]
    texts = ["red bird", "red tree"][: 1 if name == "number" else 2]
    response = serving({name: model}).post("/predict", json={"inputs": texts})
    (prediction,) = model.predict([Example(*texts)])
    assert response.json() == [{"label": label, "score": pytest.approx(prediction.value, abs=1e-4)}]


def test_pairs_and_lists_of_pairs(serving, task_models) -> None:
    pair, model = ["red bird", "blue tree"], task_models["pairs"]
    client = serving({"pairs": model})
    single = client.post("/predict", json={"inputs": pair}).json()
    (prediction,) = model.predict([Example(*pair)])
    assert {one["label"]: one["score"] for one in single} == pytest.approx(
        prediction.probabilities, abs=1e-4
    )
    assert client.post("/predict", json={"inputs": [pair]}).json() == [single]


def test_rerank_sorts_by_relevance(serving, task_models) -> None:
    model = task_models["rank"]
    client = serving({"rank": model})
    body = {"query": "red bird", "texts": TEXTS[:9]}
    ranks = client.post("/rerank", json=body).json()
    predictions = model.predict([Example("red bird", text) for text in TEXTS[:9]])
    scores = {rank["index"]: rank["score"] for rank in ranks}
    assert scores == pytest.approx({n: p.value for n, p in enumerate(predictions)}, abs=1e-4)
    assert [r["score"] for r in ranks] == sorted((r["score"] for r in ranks), reverse=True)
    assert set(ranks[0]) == {"index", "score"}
    raw = client.post("/rerank", json={**body, "raw_scores": True, "return_text": True}).json()
    assert [rank["text"] for rank in raw] == [TEXTS[rank["index"]] for rank in ranks]
    assert_close([1 / (1 + np.exp(-r["score"])) for r in raw], [r["score"] for r in ranks])


def test_tag_returns_a_tag_for_each_word(serving, task_models) -> None:
    model = task_models["tagger"]
    texts = ["The red bird", "", "remarkably large"]
    response = serving({"tagger": model}).post("/tag", json={"inputs": texts}).json()
    for text, words, prediction in zip(texts, response, model.predict(texts), strict=True):
        assert [one["word"] for one in words] == text.split()
        assert tuple(one["tag"] for one in words) == prediction.value
        assert_close([one["probability"] for one in words], prediction.probabilities)


def test_answer_returns_a_span_of_the_text(serving, task_models) -> None:
    model = task_models["reader"]
    body = [{"question": "The bird is", "text": text} for text in (TEXTS[0], " ".join(TEXTS))]
    response = serving({"reader": model}).post("/answer", json={"inputs": body}).json()
    predictions = model.predict([ExtractiveQuestion(**question) for question in body])
    assert [one["answer"] for one in response] == [p.value for p in predictions]
    assert_close([one["probability"] for one in response], [p.probabilities for p in predictions])
    for question, one in zip(body, response, strict=True):
        assert question["text"][one["start"] :].startswith(one["answer"])


def test_models_say_what_they_take(serving, encoder, task_models, translator) -> None:
    listed = serving({"encoder": encoder, **task_models, "translator": translator})
    tasks = {one["id"]: one["task"] for one in listed.get("/v1/models").json()["data"]}
    assert tasks["encoder"] is None
    assert tasks["sentiment"] == {"output": "class", "labels": ["new", "old"], "inputs": ["text"]}
    inputs = {name: task["inputs"] for name, task in tasks.items() if task}
    assert inputs["pairs"] == inputs["similarity"] == inputs["rank"] == ["pair"]
    assert inputs["tagger"] == ["words"]
    assert inputs["reader"] == ["question"]
    assert inputs["translator"] == ["text", "pair"]


def test_a_model_is_selected_by_name_or_by_endpoint(serving, encoder, task_models) -> None:
    client = serving(
        {"sentiment": task_models["sentiment"], "encoder": encoder, "number": task_models["number"]}
    )
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == [
        "sentiment",
        "encoder",
        "number",
    ]
    assert len(client.post("/predict", json={"inputs": "a"}).json()) == 2
    assert len(client.post("/predict", json={"inputs": "a", "model": "number"}).json()) == 1
    assert client.post("/fill-mask", json={"inputs": "[MASK]"}).status_code == 200
    unsupported = client.post("/fill-mask", json={"inputs": "[MASK]", "model": "sentiment"})
    assert unsupported.status_code == 400
    assert "which sentiment is not: use encoder" in unsupported.json()["error"]
    unknown = client.post("/v1/embeddings", json={"input": "a", "model": "encodr"})
    assert unknown.status_code == 404
    assert "did you mean 'encoder'?" in unknown.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", {"inputs": "a"}),
        ("/rerank", {"query": "a", "texts": ["b"]}),
        ("/tag", {"inputs": "a"}),
        ("/answer", {"inputs": [{"question": "a", "text": "b"}]}),
        ("/generate", {"inputs": "a"}),
    ],
)
def test_an_unsupported_endpoint_is_reported(serving, path: str, body: dict) -> None:
    response = serving().post(path, json=body)
    assert response.status_code == 404
    assert response.json()["error"].startswith("no model here supports this")


def test_a_named_model_that_does_not_support_an_endpoint_is_reported(serving) -> None:
    response = serving().post("/rerank", json={"query": "a", "texts": ["b"], "model": "encoder"})
    assert response.status_code == 400
    assert "which encoder is not: use another server" in response.json()["error"]


def test_generated_texts_equal_the_models(serving, translator) -> None:
    client = serving({"translator": translator})
    response = client.post("/generate", json={"inputs": TEXTS[:9]}).json()
    predictions = translator.predict(TEXTS[:9])
    assert [one["prediction"] for one in response] == [p.value for p in predictions]
    assert_close([one["probability"] for one in response], [p.probabilities for p in predictions])
    paired = client.post("/generate", json={"inputs": ["a", "b"], "pairs": ["c", "d"]})
    assert paired.status_code in (400, 422)
    assert "output_type.template is '{text}'" in paired.json()["error"]
    unequal = client.post("/generate", json={"inputs": ["a", "b"], "pairs": ["c"]})
    assert "2 inputs and 1 pair" in unequal.json()["error"]
    refused = client.post("/predict", json={"inputs": "a", "model": "translator"})
    assert refused.status_code == 400
    assert client.post("/embed", json={"inputs": "a"}).status_code == 200


def test_a_model_is_described_by_name(serving) -> None:
    client = serving()
    assert client.get("/v1/models/encoder").json() == client.get("/v1/models").json()["data"][0]
    unknown = client.get("/v1/models/encodr")
    assert unknown.status_code == 404
    assert "did you mean 'encoder'?" in unknown.json()["error"]["message"]


def test_a_causal_model_does_not_fill_masks(serving) -> None:
    from experiments.analyses.models import small_model

    model = small_model("gpt-2").text_model
    model.model.float()
    client = serving({"gpt": model})
    assert "fill-mask" not in client.get("/v1/models").json()["data"][0]["endpoints"]
    assert client.post("/fill-mask", json={"inputs": "[MASK]"}).status_code == 404


def test_an_onnx_model_only_supports_embed(serving, encoder, graph) -> None:
    client = serving({"graph": graph, "encoder": encoder})
    listed = {one["id"]: one["endpoints"] for one in client.get("/v1/models").json()["data"]}
    bodies: dict[str, dict] = {
        "embed": {"inputs": "The red bird"},
        "explore": {"text": "The red bird"},
        "fill-mask": {"inputs": "The [MASK] bird"},
    }
    for name, endpoints in listed.items():
        for endpoint, body in bodies.items():
            status = client.post(f"/{endpoint}", json={**body, "model": name}).status_code
            assert status == (200 if endpoint in endpoints else 400), (name, endpoint)
    for endpoint, body in bodies.items():
        assert client.post(f"/{endpoint}", json=body).status_code == 200
    assert listed["graph"] == ["embed"]


def test_all_endpoints_are_described(serving) -> None:
    client = serving()
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) >= {"/v1/embeddings", "/v1/models", "/embed", "/predict", "/rerank"}
    assert set(paths) >= {"/fill-mask", "/tag", "/answer", "/explore", "/health", "/metrics"}
    assert client.get("/health").json() == {"status": "ok"}


def test_errors_match_their_description(serving) -> None:
    client = serving(max_text_tokens=8)
    schema = client.get("/openapi.json").json()
    for path, body, status in [
        ("/embed", {"inputs": "red " * 9}, 413),
        ("/embed", {"inputs": 5}, 422),
        ("/embed", {"inputs": "a", "model": "no"}, 404),
        ("/v1/embeddings", {"input": 5}, 422),
        ("/explore", {"text": "a", "model": "no"}, 404),
    ]:
        response = client.post(path, json=body)
        assert response.status_code == status
        description = schema["paths"][path]["post"]["responses"][str(status)]
        name = description["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        models = {model.__name__: model for model in (ApiErrorBody, OpenAIErrorBody)}
        models[name].model_validate(response.json())
        assert set(response.json()) == set(schema["components"]["schemas"][name]["properties"])
    responses = schema["paths"]["/embed"]["post"]["responses"]
    statuses = (200, 400, 401, 404, 408, 413, 422, 429, 500, 503, 504)
    assert set(responses) == {str(status) for status in statuses}
    assert set(schema["paths"]["/health"]["get"]["responses"]) == {"200", "500", "503"}
    assert "HTTPValidationError" not in str(schema)


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
        'bertwright_batch_size_sum{model="encoder"} 2.0',
        'bertwright_tokens_total{model="encoder"} 7.0',
        'bertwright_queue_tokens{model="encoder"} 0.0',
    ):
        assert line in lines


def test_the_page_shows_the_text(serving, task_models) -> None:
    client = serving()
    page = client.post("/explore", json={"text": "The red bird"})
    assert page.headers["content-type"].startswith("text/html")
    assert '"bird"' in page.text
    long = client.post("/explore", json={"text": "bird " * 70})
    assert long.status_code == 413
    assert "the maximum is 64" in long.json()["error"]
    assert client.post("/explore", json={"text": " "}).status_code == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": "a"}),
        ("/explore", {"text": "a"}),
        ("/fill-mask", {"inputs": "[MASK]"}),
    ],
)
def test_tokenization_does_not_block_the_event_loop(
    serving, monkeypatch: pytest.MonkeyPatch, path: str, body: dict
) -> None:
    in_loop: list[bool] = []
    for name in ("encode_batch", "encode_with_masks"):
        method = getattr(Tokenizer, name)

        def record(*args, method=method):
            in_loop.append(asyncio._get_running_loop() is not None)
            return method(*args)

        monkeypatch.setattr(Tokenizer, name, record)
    assert serving().post(path, json=body).status_code == 200
    assert in_loop
    assert not any(in_loop)


@pytest.mark.parametrize("endpoint", ENDPOINT_REQUIREMENTS)
def test_a_requirement_fits_into_the_sentence_that_refuses_a_model(endpoint: str) -> None:
    """The sentence goes on after it: "X needs A MODEL, which NAME is not: use OTHER"."""
    description = ENDPOINT_REQUIREMENTS[endpoint].description
    assert description.startswith("a ")
    assert ":" not in description
