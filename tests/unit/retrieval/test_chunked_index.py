"""Indexes of chunks: hits name the characters of their text, and scores are cosines of chunks."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.models.text_model import TextModel
from bertwright.retrieval.mining import MiningConfig, PositivePair, mine_negatives
from bertwright.retrieval.search_index import SearchIndex
from bertwright.testing.toy import toy_text_model
from retrieval_encoders import EncoderModel, WordEncoder
from small_tasks import TEXTS

LONG_TEXTS = [
    IdentifiedText(f"t{n}", f"{TEXTS[n]} and {TEXTS[n + 3].lower()}", "Small" if n % 2 else None)
    for n in range(6)
]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return toy_text_model([*TEXTS, "Small and"])


def build(folder: Path, model: TextModel, **settings: object) -> SearchIndex:
    return SearchIndex.build(LONG_TEXTS, folder, model, vector_type="float32", **settings)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_hits_are_the_most_similar_chunks(tmp_path: Path, model: TextModel) -> None:
    index = build(tmp_path / "index", model, chunk_tokens=5)
    assert len(index) > 2 * len(LONG_TEXTS)
    (hits,) = index.search(["the brown bird"], len(index))
    parts = model.embed_chunks([text.content for text in LONG_TEXTS], 5)
    scores = unit(np.concatenate([p.vectors for p in parts])) @ unit(
        model.embed("the brown bird")[0]
    )
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1], atol=1e-5)
    texts = {text.id: text.text for text in LONG_TEXTS}
    assert all(hit.text == texts[hit.id][hit.start : hit.stop] for hit in hits)
    reopened = SearchIndex.open(tmp_path / "index", model)
    (again,) = reopened.search(["the brown bird"], len(index))
    assert again == hits


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_segments_change_no_chunk(tmp_path: Path, model: TextModel, kind: str) -> None:
    by_size = [
        build(tmp_path / str(size), model, kind=kind, chunk_tokens=5, segment_texts=size)
        for size in (2, 100)
    ]
    first, second = (index.search(["an old river"], 8)[0] for index in by_size)
    assert [(hit.id, hit.start) for hit in first] == [(hit.id, hit.start) for hit in second]
    assert [len(index) for index in by_size] == [len(by_size[0])] * 2


def test_one_chunk_in_each_text_is_an_index_of_texts(tmp_path: Path, model: TextModel) -> None:
    whole = build(tmp_path / "whole", model).search(["a new house"], 6)[0]
    chunked = build(tmp_path / "chunked", model, chunk_tokens=100).search(["a new house"], 6)[0]
    assert [hit.id for hit in chunked] == [hit.id for hit in whole]
    assert [hit.text for hit in chunked] == [hit.text for hit in whole]
    np.testing.assert_allclose([h.score for h in chunked], [h.score for h in whole], atol=1e-5)


def test_chunks_are_read_with_the_prompt_of_documents(tmp_path: Path) -> None:
    prompts = {"query": "small ", "document": "the house "}
    model = toy_text_model([*TEXTS, "Small and"], f"vectors.prompts={json.dumps(prompts)}")
    index = build(tmp_path / "index", model, chunk_tokens=5)
    (hits,) = index.search(["the brown bird"], len(index))
    parts = model.embed_chunks([t.content for t in LONG_TEXTS], 5, prompt=prompts["document"])
    query = unit(model.embed("small the brown bird")[0])
    scores = unit(np.concatenate([p.vectors for p in parts])) @ query
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1], atol=1e-5)


def test_mined_texts_are_whole(tmp_path: Path, model: TextModel) -> None:
    index = build(tmp_path / "index", model, chunk_tokens=5)
    assert len(index) > len(LONG_TEXTS) == len(list(index.whole_texts()))
    pairs = [PositivePair(TEXTS[n], f" {text.text} ") for n, text in enumerate(LONG_TEXTS)]
    config = MiningConfig(num_negatives=len(LONG_TEXTS), max_ratio=1.0)
    best_chunks: dict[str, float] = {}
    for hit in index.search([pairs[0].query], len(index))[0]:
        best_chunks.setdefault(hit.id, hit.score)
    (whole,) = index.search_whole_texts([pairs[0].query], len(index))
    assert {hit.id: hit.score for hit in whole} == best_chunks
    for number, negatives in enumerate(mine_negatives(index, lambda: pairs, config)):
        (hits,) = index.search_whole_texts([pairs[number].query], len(index))
        scores = {hit.content: hit.score for hit in hits}
        positive_score = scores.pop(LONG_TEXTS[number].content)
        expected = [text for text, score in scores.items() if score <= positive_score]
        assert [negative.negative for negative in negatives] == expected


def test_chunks_of_other_vectors_are_refused(tmp_path: Path) -> None:
    sparse = EncoderModel(WordEncoder("sparse"))
    for settings in ({"model": sparse}, {"kind": "bm25"}):
        with pytest.raises(UserError, match="chunks are for models with one vector"):
            SearchIndex.build(LONG_TEXTS, tmp_path / "index", chunk_tokens=5, **settings)
    assert not (tmp_path / "index").exists()


def test_the_command_finds_characters_of_a_text(tmp_path: Path, model: TextModel) -> None:
    model.save(tmp_path / "model")
    table = tmp_path / "texts.jsonl"
    lines = [json.dumps({"id": text.id, "text": text.text}) for text in LONG_TEXTS]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    index = str(tmp_path / "index")
    words = ["index", str(table), "-o", index, "--model", str(tmp_path / "model")]
    result = CliRunner().invoke(app, [*words, "--chunk-tokens", "5", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["texts"] == len(LONG_TEXTS)
    result = CliRunner().invoke(app, ["search", index, "the brown bird", "-n", "1", "--json"])
    (hit,) = json.loads(result.stdout)["results"][0]["hits"]
    texts = {text.id: text.text for text in LONG_TEXTS}
    assert hit["text"] == texts[hit["id"]][hit["start"] : hit["stop"]]
