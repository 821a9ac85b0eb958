"""A program of PyTorch alone computes what the model computes."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.interop.onnx import parity
from bertwright.interop.torch_export import PROGRAM
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer, "float32")
    model.save(folder / "bert")
    kinds = table_task("kinds", Columns())
    settings = {"epochs": 1, "compile": False, "calibrate": False}
    finetune(model, kinds, train=classes(), dev=classes(), out=folder / "kinds", **settings)
    return folder


@pytest.mark.parametrize("name", ["bert", "kinds"])
def test_it_answers_without_us(folders: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "program"
    asked = ["export", str(folders / name), "--to", "torch-export", "-o", str(out), "--json"]
    ran = CliRunner().invoke(app, asked, catch_exceptions=False)
    told = json.loads(ran.stdout)
    assert told["max_difference"] <= 1e-5 < told["greatest_output"]
    program = torch.export.load(out / PROGRAM).module()
    pieces = torch.randint(0, 30, (4, 11))
    states, answers = program(pieces, torch.ones_like(pieces), torch.zeros_like(pieces))
    assert states.shape[:2] == pieces.shape
    assert len(answers) == len(pieces)
    assert (out / "task.json").exists() == (name == "kinds")


def test_a_full_disk_is_a_sentence(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "program"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "bertwright", "export", folders / "bert"),
            *("--to", "torch-export", "-o", out),
        ],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr == f"bertwright: {out}: File too large: free some space and run again\n"
    assert not list(tmp_path.iterdir())


def test_one_that_differs_is_not_kept(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "TOLERANCE", -1.0)
    asked = ["export", str(folders / "bert"), "--to", "torch-export", "-o", str(tmp_path / "new")]
    with pytest.raises(UserError, match="differs from the model by"):
        CliRunner().invoke(app, asked, catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_options_of_others_are_refused(folders: Path, tmp_path: Path) -> None:
    asked = ["export", str(folders / "bert"), "--to", "torch-export", "-o", str(tmp_path / "new")]
    for option, because in (("--int8", "8 bits are those of"), ("--verify", "in any case")):
        with pytest.raises(UserError, match=because):
            CliRunner().invoke(app, [*asked, option], catch_exceptions=False)
