"""``/search`` equals the same search offline."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from bertwright.retrieval.search_index import SearchIndex
from bertwright.serving.app import create_app
from bertwright.serving.search_service import MAX_HITS, ServedIndex
from bertwright.serving.settings import ServingSettings
from retrieval_encoders import EncoderModel, WordEncoder
from small_tasks import TEXTS

QUERIES = ["the red bird", "an old tree", "red"]


@pytest.fixture
def indexes(encoder, tmp_path: Path) -> dict[str, ServedIndex]:
    """Indexes with and without a model."""
    texts = list(dict.fromkeys(TEXTS))
    return {
        kind: ServedIndex(
            SearchIndex.build(texts, tmp_path / kind, model, kind=kind), name if model else None
        )
        for kind, model, name in (("hybrid", encoder, "encoder"), ("bm25", None, None))
    }


@pytest.fixture
def client(encoder, indexes, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TestClient]:
    """Return a client of a server with the indexes."""
    with TestClient(create_app({"encoder": encoder}, ServingSettings(max_texts=3), indexes)) as one:
        yield one


@pytest.mark.parametrize("name", [None, "hybrid", "bm25"])
def test_answers_equal_those_of_the_index(client, indexes, name: str | None) -> None:
    response = client.post("/search", json={"queries": QUERIES, "top": 4, "index": name})
    assert response.status_code == 200, response.text
    expected = indexes[name or "hybrid"].index.search(QUERIES, 4)
    for hits, others in zip(response.json(), expected, strict=True):
        assert [(hit["id"], hit["text"]) for hit in hits] == [(h.id, h.text) for h in others]
        assert [hit["score"] for hit in hits] == pytest.approx([h.score for h in others], abs=1e-4)
        assert all("title" not in hit for hit in hits)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"queries": "red", "index": "bm"}, 404, "there is no index 'bm': did you mean 'bm25'?"),
        ({"queries": "red", "top": MAX_HITS + 1}, 422, "top: must be 1,000 or less"),
        ({"queries": ["red", " "]}, 422, "queries: holds an empty query"),
        ({"queries": ["red"] * 4}, 413, "the request has 4 texts, the maximum is 3"),
        ({"queries": ["red"] * 4, "index": "bm25"}, 413, "the request has 4 texts"),
        ({"queries": "red", "model": "encoder"}, 422, "has no key 'model'"),
        ({"queries": "bird " * 600}, 413, "text 1 has"),
    ],
)
def test_invalid_requests_are_one_sentence(client, body: dict, status: int, sentence: str) -> None:
    response = client.post("/search", json=body)
    assert response.status_code == status
    assert sentence in response.json()["error"]


def test_servers_without_an_index_say_so(serving) -> None:
    response = serving().post("/search", json={"queries": "red"})
    assert response.status_code == 404
    assert "start it with --index DIR" in response.json()["error"]


@pytest.mark.parametrize("kind", ["sparse", "late-interaction"])
def test_vectors_of_a_batch_are_put_together(kind: str) -> None:
    from bertwright.retrieval.vectors.segment import flatten_vectors, join_vectors, split_vectors

    vectors = EncoderModel(WordEncoder(kind)).encoder.encode_queries(QUERIES)
    parts = split_vectors(vectors)
    assert len(parts) == len(QUERIES)
    assert (flatten_vectors(join_vectors(parts)) == flatten_vectors(vectors)).all()
