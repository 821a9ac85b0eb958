"""``compress``, ``vocab prune``, ``static`` and ``sensitivity``."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from commands import invoke, invoke_json


def test_methods_are_listed_with_their_source() -> None:
    methods = invoke_json("compress", "methods")
    assert methods["output-distillation"].endswith(")")
    assert "pkd-last" in invoke("compress", "methods").stdout


def test_distil_writes_what_it_prints(folder: Path, tuned: Path, tmp_path: Path) -> None:
    output = tmp_path / "small"
    result = invoke_json(
        "compress", "distil", tuned, "epochs=1", "--train", folder / "train.tsv",
        "--method", "pkd-last", "--layers", 2, "-o", output, "--student", folder / "model",
    )  # fmt: skip
    assert result == json.loads((output / "compression.json").read_text())
    with pytest.raises(UserError, match="exists"):
        invoke("compress", "distil", tuned, "-o", output)


def test_prune_layers_writes_a_smaller_model(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "pruned"
    result = invoke_json("compress", "prune-layers", folder / "model", "--layers", 1, "-o", output)
    assert result["layers"] == [1]
    assert result["compression_ratio"] > 1
    assert (output / "model.safetensors").is_file()
    words = "compress", "prune-layers", folder / "model", "--layers", 1, "--units", 5
    narrower = invoke_json(*words, "-o", tmp_path / "narrower")
    assert narrower["parameters"] < result["parameters"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compress prune-layers tuned --layers 1", "run bertwright compress distil --layers"),
        ("compress distil tuned --augmenter model", "leave --augmenter out"),
        ("compress distil model", "is not fine-tuned for a task: .* compress prune-layers"),
        ("compress distil tuned", "no training data"),
        ("compress distil tuned --method pdk", "no method 'pdk'"),
        ("compress fit tuned --goal size<=9XB", "size<=9XB"),
        ("vocab prune tuned --data one --column a", "leave --column out"),
        ("static tuned --format csv", "leave --format out"),
    ],
)
def test_a_wrong_command_is_named(
    folder: Path, tuned: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        invoke(*words.split(), "-o", "x")
    assert not (folder / "x").exists()


def test_a_method_without_unlabelled_texts_is_a_warning(tuned: Path, tmp_path: Path) -> None:
    words = ["compress", "distil", str(tuned), "-o", str(tmp_path / "x")]
    result = CliRunner().invoke(app, [*words, "--method", "pre-trained-distillation"])
    assert "no --unlabelled file" in result.stderr


def test_sensitivity_measures_every_module(folder: Path, tuned: Path) -> None:
    command = ("sensitivity", tuned, "--train", folder / "train.tsv", "--max-examples", 6)
    result = invoke_json(
        *command, "bits=2", "granularity=tensor", "activations.ranges=token", "--num-subsets", 1
    )
    by_module = {line["module"]: line for line in result["modules"]}
    assert {"everything", "blocks.0", "blocks.1", "embeddings.tokens.weight"} <= by_module.keys()
    assert by_module["blocks.1"]["omega"] == abs(by_module["blocks.1"]["eigenvalue"])
    table = invoke(*command, "--num-subsets", 1).stdout
    assert "largest eigenvalue" in table
    table = invoke(*command, "activations=null", "--num-subsets", 0).stdout
    assert "| blocks.0 |" in table
    assert "eigenvalue" not in table
    assert "input" not in table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model", "--train", "train.tsv"), "is not fine-tuned for a task"),
        (("tuned", "--train", "train.tsv", "bits=9"), "bits: must be 8 or less, not 9"),
        (("tuned", "--train", "train.tsv", "kind=full"), "kind: must be 'quantised'"),
        (("tuned",), "no training data"),
    ],
)
def test_a_wrong_sensitivity_is_named(
    folder: Path, tuned: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[Any, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        invoke("sensitivity", *words)
