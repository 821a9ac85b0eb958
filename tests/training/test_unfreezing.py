"""Training the last levels only: what is frozen, what is resumed, and fine-tuning that thaws."""

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_recipe import small
from test_pretraining import assert_equal, stop_at, weights

from bertwright.encoder.roles import roles
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.optimisers.parameters import MasterParameters
from bertwright.text.shards import Data
from bertwright.training.pretraining import pretrain

BERT = ("encoder.positions.size=64", "batch_tokens=128")
THAWING = "phases=[{share: 0.4, trained: 1}, {share: 0.3, trained: 3}, {share: 0.3}]"


def levels(model: Model) -> dict[str, int]:
    """The level of every parameter."""
    return {s.name: s.level for s in MasterParameters(model, roles(model), "float32").slots}


def test_levels_are_those_of_the_blocks() -> None:
    """What feeds the blocks is 0, what reads them is the highest, whatever it is called."""
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
@pytest.mark.parametrize("trained", [1, 2, 3])
def test_what_is_frozen_stays_to_the_last_bit(
    data: Data, tmp_path: Path, trained: int, precision: str
) -> None:
    recipe = small(
        "bert", *BERT, f"phases=[{{trained: {trained}}}]", "steps=3", f"precision={precision}"
    )
    first = Model.build(recipe, data.tokenizer.size)
    at = levels(first)
    before = {name: p.detach().clone() for name, p in first.named_parameters()}
    pretrain(recipe, data, tmp_path / "out")
    for name, after in weights(tmp_path / "out").items():
        assert torch.equal(after, before[name]) == (at[name] < 4 - trained), name
    (optimiser,) = (tmp_path / "out").glob("checkpoints/*/optimiser.safetensors")
    for name, moment in load_file(optimiser).items():
        if name != "num_steps":
            parameter = name.removeprefix("first.").removeprefix("second.")
            assert moment.any() == (at[parameter] >= 4 - trained), name


@pytest.mark.parametrize("stop", [2, 4, 5, 7, 8])
def test_a_stop_before_or_after_a_thaw_changes_nothing(
    data: Data, tmp_path: Path, stop: int
) -> None:
    recipe = small("bert", *BERT, THAWING, "steps=10", "checkpoint_every=1")
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(stop))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_compiled_equals_eager(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced as ever, but computed as it stands: generating code takes most of the time.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    changes = (*BERT, THAWING, "steps=6", "optimiser.layer_decay=0.5", "moving_average=0.5")
    for compiled in ("false", "true"):
        recipe = small("bert", *changes, f"compile={compiled}")
        pretrain(recipe, data, tmp_path / compiled)
    eager, traced = weights(tmp_path / "false"), weights(tmp_path / "true")
    assert all(torch.allclose(eager[name], traced[name], atol=1e-5) for name in eager)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("phases=[{trained: 5}]", "no more than 4 levels"),
        ("encoder.depth.sharing=all", "share their parameters"),
    ],
)
def test_what_has_no_such_levels_is_refused(change: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        small("bert", *BERT, THAWING, change)
    with pytest.raises(UserError, match="share their parameters"):
        small("albert", "phases=[{}]", "optimiser.layer_decay=0.5")
