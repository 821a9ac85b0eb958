"""An exported PyTorch program computes what the model computes."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop import parity
from bertwright.interop.torch_export import PROGRAM_FILE, export_torch_program
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from full_suite import full_except
from small_tasks import ENGLISH, classes
from toy_recipes import toy


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer, "float32")
    model.save(folder / "bert")
    kinds = table_task("kinds", Columns())
    settings = {"epochs": 1, "compile": False, "calibrate": False}
    finetune(model, kinds, train=classes(), dev=classes(), output=folder / "kinds", **settings)
    return folder


@pytest.mark.parametrize("name", full_except(["bert", "kinds"], ["kinds"]))
def test_a_program_runs_without_bertwright(folders: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "program"
    arguments = ["export", str(folders / name), "--to", "torch-export", "-o", str(out), "--json"]
    process = CliRunner().invoke(app, arguments, catch_exceptions=False)
    result = json.loads(process.stdout)
    assert result["max_difference"] <= 1e-5 < result["max_output"]
    program = torch.export.load(out / PROGRAM_FILE).module()
    token_ids = torch.randint(0, 30, (4, 11))
    hidden_states, *outputs = program(
        token_ids, torch.ones_like(token_ids), torch.zeros_like(token_ids)
    )
    assert hidden_states.shape[:2] == token_ids.shape
    # Logits, and embeddings or probabilities.
    assert [len(output) for output in outputs] == [len(token_ids)] * 2
    assert (out / "task.json").exists() == (name == "kinds")


@pytest.mark.full
@pytest.mark.parametrize("system", ["lstm-lm", "elmo"])
def test_a_program_has_no_onnx_operators(tmp_path: Path, system: str) -> None:
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    model = TextModel(Model.build(toy(system), tokenizer.vocab_size), tokenizer, "float32")
    parity = export_torch_program(model, tmp_path / "program")
    assert parity.max_difference <= 1e-5 < parity.max_output


@pytest.mark.full
def test_a_full_disk_is_reported(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "program"
    process = subprocess.run(
        [
            *(sys.executable, "-m", "bertwright", "export", folders / "bert"),
            *("--to", "torch-export", "-o", out),
        ],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert process.returncode == 2, process.stderr
    assert process.stderr == f"bertwright: {out}: File too large: free some space and run again\n"
    assert not list(tmp_path.iterdir())


def test_a_program_that_differs_is_not_kept(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "OUTPUT_TOLERANCE", -1.0)
    arguments = [
        "export",
        str(folders / "bert"),
        "--to",
        "torch-export",
        "-o",
        str(tmp_path / "new"),
    ]
    with pytest.raises(UserError, match="differs from the model by"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_options_of_other_formats_are_refused(folders: Path, tmp_path: Path) -> None:
    arguments = [
        "export",
        str(folders / "bert"),
        "--to",
        "torch-export",
        "-o",
        str(tmp_path / "new"),
    ]
    for option, message in (("--int8", "int8 is for"), ("--verify", "always compared")):
        with pytest.raises(UserError, match=message):
            CliRunner().invoke(app, [*arguments, option], catch_exceptions=False)
