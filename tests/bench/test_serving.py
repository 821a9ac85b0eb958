"""A server under load: figures of both sides, and a short siege that loses nothing."""

from pathlib import Path

import pytest
import torch

from bertwright.bench.serving.soak import soak
from bertwright.bench.serving.throughput import compare
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, TEXTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("served") / "toy"
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=160))
    TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer).save(folder)
    return folder


def test_both_sides_are_measured(folder: Path) -> None:
    one, five = compare(folder, TEXTS, 4, (1, 5), 1, lambda line: None)
    assert (one["request"], five["request"]) == (1, 5)
    for row in (one, five):
        assert row["texts"] == len(TEXTS)
        assert row["served_per_second"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        # In bfloat16, where the processor has it, company may change how a number is rounded.
        assert row["difference"] < 0.01


def test_a_siege_loses_nothing(folder: Path) -> None:
    found = soak(folder, [*TEXTS, " ".join(TEXTS)], 8, 2.0, lambda line: None)
    assert found["answered"] > 0
    assert found["cut"] > 0
    assert found["misread"] > 0
    assert found["too_large"] > 0
    nothing = {name: found[name] for name in ("wrong", "lost", "failed", "unlike", "exit_code")}
    assert nothing == dict.fromkeys(nothing, 0)
