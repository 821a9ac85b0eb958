"""Gradual unfreezing: frozen parameters and resumed runs."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.training.pretraining.pretrain import pretrain
from run_folders import assert_equal, stop_at, weights
from small_recipe import small

BERT = ("encoder.positions.size=64", "batch_tokens=128")
UNFREEZING = (
    "phases=[{fraction: 0.4, trainable_layers: 1}, {fraction: 0.3, trainable_layers: 3}, "
    "{fraction: 0.3}]"
)


def levels(model: Model) -> dict[str, int]:
    """Return the level of every parameter."""
    return {
        s.name: s.level
        for s in MasterParameters(model, get_parameter_roles(model), "float32").slots
    }


def test_levels_follow_the_blocks() -> None:
    """Embeddings have level 0, heads the highest one."""
    for system in ("bert", "modern", "electra", "transformer-xl"):
        recipe = (
            small(system, "phases=[{objectives: {masked: {}}}]")
            if system == "modern"
            else (
                small(system, "phases=[{}]", *(BERT[:1] if system in ("bert", "electra") else ()))
            )
        )
        for name, level in levels(Model.build(recipe, 40)).items():
            if name.startswith("encoder.embeddings."):
                assert level == 0, name
            elif name.startswith("encoder.blocks."):
                assert level == int(name.split(".")[2]) + 1, name
            elif not name.startswith("heads.generated."):
                assert level == 3, name


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("num_levels", [1, 2, 3])
def test_frozen_parameters_do_not_change(
    data: Dataset, tmp_path: Path, num_levels: int, precision: str
) -> None:
    phases = f"phases=[{{trainable_layers: {num_levels}}}]"
    recipe = small("bert", *BERT, phases, "steps=3", f"precision={precision}")
    first = Model.build(recipe, data.tokenizer.vocab_size)
    level_of = levels(first)
    before = {name: p.detach().clone() for name, p in first.named_parameters()}
    pretrain(recipe, data, tmp_path / "out")
    for name, after in weights(tmp_path / "out").items():
        assert torch.equal(after, before[name]) == (level_of[name] < 4 - num_levels), name
    (optimiser,) = (tmp_path / "out").glob("checkpoints/*/optimiser.safetensors")
    for name, moment in load_file(optimiser).items():
        if name != "num_steps":
            parameter = name.removeprefix("first.").removeprefix("second.")
            assert moment.any() == (level_of[parameter] >= 4 - num_levels), name


@pytest.mark.parametrize("stop", [2, 4, 5, 7, 8])
def test_a_stop_before_or_after_unfreezing_changes_nothing(
    data: Dataset, tmp_path: Path, stop: int
) -> None:
    recipe = small("bert", *BERT, UNFREEZING, "steps=10", "checkpoint_every=1")
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(stop)
        )
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.full
def test_compiled_equals_eager(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Traced, but without code generation, which takes most of the time.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    changes = (*BERT, UNFREEZING, "steps=6", "optimiser.layer_decay=0.5", "ema_decay=0.5")
    for compiled in ("false", "true"):
        recipe = small("bert", *changes, f"compile={compiled}")
        pretrain(recipe, data, tmp_path / compiled)
    eager, traced = weights(tmp_path / "false"), weights(tmp_path / "true")
    assert all(torch.allclose(eager[name], traced[name], atol=1e-5) for name in eager)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("phases=[{trainable_layers: 5}]", "only 4 levels"),
        ("encoder.depth.sharing=all", "shared parameters"),
    ],
)
def test_invalid_levels_are_rejected(change: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        small("bert", *BERT, UNFREEZING, change)
    with pytest.raises(UserError, match="shared parameters"):
        small("albert", "phases=[{}]", "optimiser.layer_decay=0.5")
