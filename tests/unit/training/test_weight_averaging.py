"""Weight averaging: its result, and models that cannot be averaged."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.models.saving import TASK_FILE, load_model, save_model
from bertwright.training.callbacks.feature_redraw import FeatureRedraw
from bertwright.training.clock import Progress
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.weight_averaging import average_models
from small_recipe import small
from toy_recipes import toy


def untrained(data: Dataset, folder: Path, *changes: str) -> Path:
    """Save an untrained model in a folder."""
    recipe = small("bert", "encoder.positions.size=64", "phases=[{}]", *changes)
    save_model(folder, Model.build(recipe, data.tokenizer.vocab_size), data.tokenizer)
    return folder


def test_the_mean_of_three_models(data: Dataset, tmp_path: Path) -> None:
    folders = [untrained(data, tmp_path / str(seed), f"seed={seed}") for seed in range(3)]
    average_models(folders, tmp_path / "mean")
    models = [load_file(folder / "model.safetensors") for folder in folders]
    for name, mean in load_file(tmp_path / "mean" / "model.safetensors").items():
        expected = torch.stack([weights[name].double() for weights in models]).mean(0)
        torch.testing.assert_close(mean.double(), expected, atol=1e-7, rtol=1e-6)
    model, tokenizer = load_model(tmp_path / "mean")
    assert tokenizer.hash == data.tokenizer.hash
    assert model.recipe == load_model(folders[0])[0].recipe


def test_random_features_are_those_of_the_last_model(data: Dataset, tmp_path: Path) -> None:
    recipe = toy("performer", "text.tokenizer.kind=wordpiece", "encoder.positions.size=64")
    for name in ("first", "last"):
        model = Model.build(recipe, data.tokenizer.vocab_size)
        FeatureRedraw(model, 1, seed=1).before_step(Progress(int(name == "last"), 0.0))
        save_model(tmp_path / name, model, data.tokenizer)
    average_models([tmp_path / "first", tmp_path / "last"], tmp_path / "mean")
    mean, last = (load_file(tmp_path / n / "model.safetensors") for n in ("mean", "last"))
    features = [name for name in mean if name.endswith(".random_features")]
    assert features
    assert all(torch.equal(mean[name], last[name]) for name in features)


def test_the_last_checkpoints_of_a_run(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    checkpoints = [load_file(path / "parameters.safetensors") for path in kept]
    for name, mean in load_file(tmp_path / "mean" / "model.safetensors").items():
        torch.testing.assert_close(mean, torch.stack([w[name] for w in checkpoints]).mean(0))


def test_a_mean_keeps_the_spelling_of_tokens(data: Dataset, tmp_path: Path) -> None:
    recipe = toy("elmo", "text.tokenizer.kind=wordpiece", "checkpoint_every=1", "steps=2")
    pretrain(recipe, data, tmp_path / "run", quiet=True)
    kept = sorted((tmp_path / "run" / "checkpoints").iterdir())
    number = average_models(kept, tmp_path / "mean")
    model, run = (load_model(tmp_path / name)[0] for name in ("mean", "run"))
    spelled, expected = (m.encoder.embeddings.tokens.spelling for m in (model, run))
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
def test_different_models_are_rejected(
    data: Dataset, tmp_path: Path, change: str, reason: str
) -> None:
    folders = [untrained(data, tmp_path / "a"), untrained(data, tmp_path / "b", change)]
    with pytest.raises(UserError, match=reason):
        average_models(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_other_tokenizers_and_folders_are_rejected(
    data: Dataset, byte_data: Dataset, tmp_path: Path
) -> None:
    one = untrained(data, tmp_path / "one")
    other = untrained(byte_data, tmp_path / "other", "text.tokenizer.kind=byte-bpe")
    with pytest.raises(UserError, match="another tokenizer"):
        average_models([one, other], tmp_path / "mean")
    with pytest.raises(UserError, match="neither a model folder"):
        average_models([one, tmp_path / "nowhere"], tmp_path / "mean")
    with pytest.raises(UserError, match="at least two models"):
        average_models([one], tmp_path / "mean")


def test_fine_tuned_models_are_rejected(data: Dataset, tmp_path: Path) -> None:
    # One that generates text has the parameters of its recipe: only its task would be lost.
    folders = [untrained(data, tmp_path / name) for name in "ab"]
    (folders[1] / TASK_FILE).write_text("{}")
    with pytest.raises(UserError, match="b is fine-tuned for a task"):
        average_models(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
