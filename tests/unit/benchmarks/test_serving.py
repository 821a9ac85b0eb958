"""A server under load: figures of both sides, and an overload that loses no request."""

from pathlib import Path

import pytest
import torch

from benchmarks.serving.soak import run_soak
from benchmarks.serving.throughput import compare
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from small_tasks import ENGLISH, TEXTS
from toy_recipes import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("serve") / "toy"
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer).save(folder)
    return folder


@pytest.mark.full
def test_both_sides_are_measured(folder: Path) -> None:
    one, five = compare(folder, TEXTS, 4, (1, 5), 1, lambda line: None)
    assert (one["request"], five["request"]) == (1, 5)
    for row in (one, five):
        assert row["texts"] == len(TEXTS)
        assert row["served_per_second"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        # In bfloat16 the rounding depends on the batch.
        assert row["difference"] < 0.01


@pytest.mark.full
def test_an_overload_loses_no_request(folder: Path) -> None:
    result = run_soak(folder, [*TEXTS, " ".join(TEXTS)], 8, 2.0, lambda line: None)
    assert result["correct"] > 0
    assert result["dropped"] > 0
    assert result["garbage_refused"] > 0
    assert result["too_large"] > 0
    faults = {name: result[name] for name in ("wrong", "lost", "failed", "unexpected", "exit_code")}
    assert faults == dict.fromkeys(faults, 0)
