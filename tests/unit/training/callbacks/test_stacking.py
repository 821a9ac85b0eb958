"""Progressive stacking: copied blocks and resumed runs."""

from pathlib import Path

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models import Model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.training.callbacks.progressive_stacking import ProgressiveStacking
from bertwright.training.clock import Progress
from bertwright.training.pretraining.pretrain import pretrain
from run_folders import assert_equal, stop_at
from small_recipe import stacking_recipe


def test_the_stack_is_copied_on_top_of_itself() -> None:
    recipe = stacking_recipe()
    model = Model.build(recipe, 40)
    parameters = MasterParameters(model, get_parameter_roles(model), "float32")
    optimiser = recipe.optimiser.build(parameters)
    callback = ProgressiveStacking(model, parameters, optimiser)
    optimiser.step(torch.ones_like(parameters.gradient), 1.0, torch.tensor(1.0))
    depths: list[int] = []
    for phase in (0, 1, 1, 2):
        callback.before_step(Progress(0, 0.0, phase))
        depths.append(model.encoder.num_running_blocks)
        blocks = [[p.detach().clone() for p in b.parameters()] for b in model.encoder.blocks]
        assert any(moment.any() for moment in optimiser.state_dict().values()) != (phase > 0)
    assert depths == [1, 2, 2, 4]
    for upper, lower in ((1, 0), (2, 0), (3, 1)):
        assert all(torch.equal(a, b) for a, b in zip(blocks[upper], blocks[lower], strict=True))


def test_a_reset_restores_the_initial_optimiser_state() -> None:
    recipe = stacking_recipe("optimiser={kind: adagrad, start: 0.5}")
    model = Model.build(recipe, 40)
    parameters = MasterParameters(model, get_parameter_roles(model), "float32")
    optimiser = recipe.optimiser.build(parameters)
    first = {name: tensor.clone() for name, tensor in optimiser.state_dict().items()}
    optimiser.step(torch.ones_like(parameters.gradient), 1.0, torch.tensor(1.0))
    optimiser.reset()
    assert all(torch.equal(tensor, first[name]) for name, tensor in optimiser.state_dict().items())


@pytest.mark.parametrize("stop", [2, 3, 6])
def test_a_stop_before_or_after_the_copy_changes_nothing(
    data: Dataset, tmp_path: Path, stop: int
) -> None:
    recipe = stacking_recipe("steps=10", "checkpoint_every=1")
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(stop)
        )
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "resumed")
    pretrain(recipe, data, tmp_path / "resumed", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("phases=[{depth: 0.5}]", "end at 1"),
        ("phases=[{}, {depth: 0.5}, {}]", "not decrease"),
        ("encoder.depth.sharing=all", "cannot be stacked"),
    ],
)
def test_invalid_stacking_is_rejected(change: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        stacking_recipe(change)
