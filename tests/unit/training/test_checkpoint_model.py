"""Checkpoints of a run are models."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.interop.loading import load
from bertwright.models.saving import WEIGHTS_FILE, load_model
from bertwright.training.checkpoint_model import is_checkpoint, load_checkpoint_model
from bertwright.training.pretraining.pretrain import pretrain
from small_recipe import small
from toy_recipes import toy

EVERY_TWO = ("checkpoint_every=2", "text.tokenizer.kind=wordpiece")


@pytest.mark.parametrize("system", ["modern", "gpt-bert", "elmo", "performer"])
def test_the_last_checkpoint_is_the_model(data: Dataset, tmp_path: Path, system: str) -> None:
    pretrain(toy(system, "steps=4", *EVERY_TWO), data, tmp_path / "run", quiet=True)
    first, last = sorted((tmp_path / "run" / "checkpoints").iterdir())
    expected, tokenizer = load_model(tmp_path / "run")
    model, same_tokenizer = load_checkpoint_model(last)
    assert same_tokenizer.hash == tokenizer.hash
    assert model.recipe == expected.recipe
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=0, atol=0)
    earlier = load_checkpoint_model(first)[0].state_dict()
    assert any(not torch.equal(earlier[name], value) for name, value in model.state_dict().items())


@pytest.fixture
def checkpoint(data: Dataset, tmp_path: Path) -> Path:
    """The checkpoint of a run that did not finish."""
    run = tmp_path / "run"
    pretrain(small("modern", "steps=2", *EVERY_TWO), data, run, quiet=True)
    (run / WEIGHTS_FILE).unlink()
    (path,) = (run / "checkpoints").iterdir()
    return path


def test_the_model_of_an_unfinished_run_is_used(
    checkpoint: Path, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint)
    outcome = CliRunner().invoke(app, ["fill-mask", ".", "the [MASK]"], catch_exceptions=False)
    assert "%" in outcome.stdout
    pretrain(None, data, tmp_path / "further", overrides=["steps=1"], start_from=checkpoint)
    assert load(tmp_path / "further").model.recipe.name == load(checkpoint).model.recipe.name
    with pytest.raises(UserError, match=r"name one of its checkpoints"):
        load(checkpoint.parent.parent)


def test_damaged_checkpoints_are_rejected(checkpoint: Path) -> None:
    file = checkpoint / "parameters.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert is_checkpoint(checkpoint)
    with pytest.raises(UserError, match="damaged checkpoint"):
        load(checkpoint)


def test_checkpoints_with_fewer_blocks_are_rejected(data: Dataset, tmp_path: Path) -> None:
    phases = "phases=[{fraction: 0.5, depth: 0.5}, {fraction: 0.5}]"
    recipe = toy("bert", "steps=4", phases, *EVERY_TWO)
    pretrain(recipe, data, tmp_path / "run", quiet=True)
    shallow, whole = sorted((tmp_path / "run" / "checkpoints").iterdir())
    load(whole)
    with pytest.raises(UserError, match="has trained 1 of 2 blocks: use a later checkpoint"):
        load(shallow)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (3, r"lacks the parameter encoder\.blocks\.2"),
        (1, r"holds the parameter encoder\.blocks\.1"),
    ],
)
def test_checkpoints_of_another_recipe_are_rejected(
    checkpoint: Path, layers: int, message: str
) -> None:
    recipe = checkpoint.parent.parent / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("layers: 2", f"layers: {layers}"))
    with pytest.raises(UserError, match=message):
        load(checkpoint)
