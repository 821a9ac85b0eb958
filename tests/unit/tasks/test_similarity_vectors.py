"""A model fine-tuned for similarity embeds texts as it compares them, whatever its head."""

from typing import Any

import numpy as np
import pytest

import bertwright as bw
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.outputs import SimilarityOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadSpec, TaskModel
from small_tasks import ENGLISH
from toy_recipes import shaken, toy

TEXTS = ("the old bird is red", "the house is green", "")
LAST: dict[str, Any] = {"kind": "plain", "pooling": "last"}
HEADS: dict[str, dict[str, Any]] = {
    "mean": {"kind": "plain", "pooling": "mean"},
    "first": {"kind": "plain", "pooling": "first"},
    "last": LAST,
    "last, maximum and mean": {"kind": "plain", "pooling": "last-max-mean"},
    "two layers": {"kind": "plain", "pooling": "mean", "layers": "last-2", "mix": "mean"},
    "norm": {"kind": "plain", "pooling": "mean", "norm": "layer"},
}


def similarity_model(system: str, head: dict[str, Any]) -> FineTunedModel:
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    task = Task("near", SimilarityOutput())
    spec = HeadSpec(HeadConfig.parse(head), 0, task.output_type.kind_name())
    model = TaskModel(toy(system), tokenizer.vocab_size, spec)
    for parameter in model.parameters():
        parameter.data.fill_(0.3 if parameter.ndim == 1 else 0.0)
    return FineTunedModel(shaken(model, 0.4), tokenizer, task, precision="float32")


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("system", ["bert", "gpt", "xlnet"])
def test_vectors_are_those_that_are_compared(system: str, head: dict[str, Any]) -> None:
    model = similarity_model(system, head)
    vectors = model.embed(TEXTS)
    predictions = model.predict([Example(text, TEXTS[0]) for text in TEXTS])
    for vector, prediction in zip(vectors, predictions, strict=True):
        assert prediction.vectors is not None
        np.testing.assert_allclose(vector, prediction.vectors[0], atol=1e-5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(TEXTS, normalise=True), unit, atol=1e-6)
    np.testing.assert_allclose([p.value for p in predictions], unit @ unit[0], atol=1e-5)
    encoder = model.retrieval_encoder()
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), model.embed(TEXTS), atol=1e-6)
    assert model.embed([]).shape == (0, vectors.shape[1])
    assert encoder.width == vectors.shape[1]


def test_a_graph_embeds_by_the_head(tmp_path) -> None:
    model = similarity_model("gpt", LAST)
    export_onnx(model, tmp_path / "graph")
    graph = load(tmp_path / "graph")
    np.testing.assert_allclose(graph.embed(TEXTS), model.embed(TEXTS), atol=1e-4)


def test_a_stated_pooling_replaces_the_head() -> None:
    model = similarity_model("gpt", LAST)
    assert np.abs(model.embed(TEXTS[:1], "mean") - model.embed(TEXTS[:1])).max() > 1e-3
    with pytest.raises(UserError, match=r"its head \(pooling last\): choose pooling mean"):
        model.embed_chunks(TEXTS[:1], 4)
    assert len(model.embed_chunks(TEXTS[:1], 4, "mean")) == 1
