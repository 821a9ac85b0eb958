"""The mean of several models: its value, what may be averaged, and what is refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_recipe import small
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model.folder import load_model, save_model
from bertwright.model.model import Model
from bertwright.text.shards import Data
from bertwright.training.averaging import average
from bertwright.training.pretraining import pretrain
from recipes_at_toy_size import toy


def drawn(data: Data, folder: Path, *changes: str) -> Path:
    """An untrained model in a folder."""
    recipe = small("bert", "encoder.positions.size=64", "phases=[{}]", *changes)
    save_model(folder, Model.build(recipe, data.tokenizer.size), data.tokenizer)
    return folder


def test_the_mean_of_three_models(data: Data, tmp_path: Path) -> None:
    folders = [drawn(data, tmp_path / str(seed), f"seed={seed}") for seed in range(3)]
    average(folders, tmp_path / "mean")
    each = [load_file(folder / "model.safetensors") for folder in folders]
    for name, mean in load_file(tmp_path / "mean" / "model.safetensors").items():
        expected = torch.stack([weights[name].double() for weights in each]).mean(0)
        torch.testing.assert_close(mean.double(), expected, atol=1e-7, rtol=1e-6)
    model, tokenizer = load_model(tmp_path / "mean")
    assert tokenizer.hash == data.tokenizer.hash
    assert model.recipe == load_model(folders[0])[0].recipe


def test_the_last_checkpoints_of_a_run(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    changes = ("encoder.positions.size=64", "phases=[{}]", "checkpoint_every=2", "steps=8")
    pretrain(small("bert", *changes, "checkpoints_kept=3"), data, run)
    kept = sorted((run / "checkpoints").iterdir())
    assert [path.name[-2:] for path in kept] == ["04", "06", "08"]
    monkeypatch.chdir(run / "checkpoints")
    words = ["average", *(path.name for path in kept), "-o", "../../mean", "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert '"averaged": 3' in result.stdout
    each = [load_file(path / "parameters.safetensors") for path in kept]
    for name, mean in load_file(tmp_path / "mean" / "model.safetensors").items():
        torch.testing.assert_close(mean, torch.stack([w[name] for w in each]).mean(0))


def test_a_mean_keeps_how_pieces_are_spelled(data: Data, tmp_path: Path) -> None:
    recipe = toy("elmo", "text.tokenizer.kind=wordpiece", "checkpoint_every=1", "steps=2")
    pretrain(recipe, data, tmp_path / "run", quiet=True)
    kept = sorted((tmp_path / "run" / "checkpoints").iterdir())
    number = average(kept, tmp_path / "mean")
    model, run = (load_model(tmp_path / name)[0] for name in ("mean", "run"))
    spelled, expected = (m.encoder.embeddings.pieces.spelling for m in (model, run))
    assert spelled.any()
    assert torch.equal(spelled, expected)
    assert number == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("encoder.width=48", r"differs from .* in encoder\.width"),
        ("encoder.dropout=0.2", r"in encoder\.dropout \(0\.2, not 0\.1\)"),
        ("objectives.next-sentence=null", "has other parameters"),
    ],
)
def test_other_models_are_refused(data: Data, tmp_path: Path, change: str, reason: str) -> None:
    folders = [drawn(data, tmp_path / "a"), drawn(data, tmp_path / "b", change)]
    with pytest.raises(UserError, match=reason):
        average(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_other_tokenizers_and_other_folders_are_refused(
    data: Data, byte_data: Data, tmp_path: Path
) -> None:
    one = drawn(data, tmp_path / "one")
    other = drawn(byte_data, tmp_path / "other", "text.tokenizer.kind=byte-bpe")
    with pytest.raises(UserError, match="another tokenizer"):
        average([one, other], tmp_path / "mean")
    with pytest.raises(UserError, match="neither a model folder"):
        average([one, tmp_path / "nowhere"], tmp_path / "mean")
    with pytest.raises(UserError, match="two models at least"):
        average([one], tmp_path / "mean")
