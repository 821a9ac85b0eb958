"""The exports of an encoder are compared with the encoder in every runtime that is installed."""

from pathlib import Path

import pytest

import bertwright as bw
from benchmarks import exports
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from small_tasks import ENGLISH, TEXTS
from toy_recipes import shaken, toy


@pytest.mark.full
def test_onnxruntime_is_compared_with_the_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "JAVASCRIPT", tmp_path)
    monkeypatch.setattr(exports, "is_installed", lambda library: False)
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    recipe = toy("bert", "encoder.depth.layers=1")
    network = shaken(Model.build(recipe, tokenizer.vocab_size), 0.1)
    TextModel(network, tokenizer, "float32").save(tmp_path / "model")
    left_out = list[str]()
    float32, int8 = exports.compare(tmp_path / "model", TEXTS[:4], left_out.append)
    assert float32["max_difference"] < 1e-5 < int8["max_difference"]
    assert int8["min_cosine"] < int8["cosine"] < float32["min_cosine"] + 1e-6
    assert int8["megabytes"] < float32["megabytes"]
    assert ["transformers.js" in left_out[0], "llama.cpp" in left_out[1]] == [True, True]
