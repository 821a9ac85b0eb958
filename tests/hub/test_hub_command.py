"""``python -m tests.hub`` writes its table."""

from pathlib import Path

import pytest

import bertwright as bw
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from small_tasks import ENGLISH
from tests.hub.__main__ import STEPS, run_steps
from toy_recipes import toy


@pytest.mark.full
def test_every_step_ends_as_it_must(tmp_path: Path) -> None:
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer).save(tmp_path / "model")
    rows = list(run_steps(tmp_path / "model"))
    assert [row["step"] for row in rows] == list(STEPS)
