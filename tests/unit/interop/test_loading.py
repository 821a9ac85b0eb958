"""One function loads all kinds of folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bertwright as bw
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.formats.tables import Columns
from small_tasks import ENGLISH, classes
from toy_recipes import toy


@pytest.fixture
def model() -> TextModel:
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    return TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer)


def test_the_type_of_a_model_survives(model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert type(bw.load(tmp_path / "model")) is TextModel
    task = table_task("task", Columns())
    bw.finetune(model, task, train=classes(), epochs=1, output=tmp_path / "tuned")
    tuned = bw.load(str(tmp_path / "tuned"))
    assert isinstance(tuned, bw.FineTunedModel)
    assert tuned.predict(["The red bird"])[0].value in ("old", "new")


def test_loading_imports_no_compiler_and_no_metrics(model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    code = f"""
import sys
import bertwright as bw
bw.load({str(tmp_path / "model")!r}).embed(["The red bird"])
print(*sorted({{"torch._dynamo", "sklearn", "scipy", "transformers"}} & set(sys.modules)))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == []


def test_loading_leaves_the_process_as_it_is(model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    code = f"""
import os, warnings
import torch

def state():
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return (
        dict(os.environ), list(warnings.filters), torch.get_num_threads(),
        torch.get_num_interop_threads(), torch.get_default_dtype(), cudnn.allow_tf32,
        cudnn.benchmark, cudnn.deterministic, matmul.allow_tf32, torch.is_grad_enabled(),
        torch.get_deterministic_debug_mode(), torch.get_float32_matmul_precision(),
    )

before = state()
import bertwright as bw
bw.load({str(tmp_path / "model")!r}).embed(["The red bird"])
assert state() == before
bw.load({str(tmp_path / "model")!r}, "float32").embed(["The red bird"])
assert state() == before
"""
    names = ("PATH", "PYTHONPATH", "HOME", "XDG_CACHE_HOME", "OMP_NUM_THREADS")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_folders_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model folder"):
        bw.load(tmp_path / "missing")
    with pytest.raises(UserError, match=r"holds no model: neither recipe\.yaml"):
        bw.load(tmp_path)
