"""One way to load a folder, whoever wrote it."""

import subprocess
import sys
from pathlib import Path

import pytest

import bertwright as bw
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordPieceChoice
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes


@pytest.fixture
def model() -> TextModel:
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    return TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer)


def test_a_model_comes_back_as_what_it_is(model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert type(bw.load(tmp_path / "model")) is TextModel
    task = table_task("own", Columns())
    bw.finetune(model, task, train=classes(), epochs=1, out=tmp_path / "tuned")
    tuned = bw.load(str(tmp_path / "tuned"))
    assert isinstance(tuned, bw.FineTuned)
    assert tuned.predict(["The red bird"])[0].answer in ("old", "new")


def test_loading_imports_no_compiler_and_no_metrics(model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    code = f"""
import sys
import bertwright as bw
bw.load({str(tmp_path / "model")!r}).embed(["The red bird"])
print(*sorted({{"torch._dynamo", "sklearn", "scipy", "transformers"}} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_where_there_is_no_model_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no model folder"):
        bw.load(tmp_path / "missing")
    with pytest.raises(UserError, match=r"holds no model: neither recipe\.yaml"):
        bw.load(tmp_path)
