"""Progressive stacking: what is copied when, and that a run which stops in between goes on."""

from pathlib import Path

import pytest
import torch
from small_recipe import CHANGES
from test_pretraining import assert_equal, stop_at

from bertwright.encoder.roles import roles
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.optimisers.parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clock import Place
from bertwright.training.growth import Growth
from bertwright.training.pretraining import pretrain

PHASES = "phases=[{share: 0.3, depth: 0.25}, {share: 0.3, depth: 0.5}, {share: 0.4}]"


def growing(*changes: str) -> Recipe:
    own = ("encoder.depth.layers=4", "text.tokenizer.kind=wordpiece", PHASES)
    return Recipe.load("stacking", *CHANGES, *own, *changes)


def test_the_stack_is_copied_on_top_of_itself() -> None:
    recipe = growing()
    model = Model.build(recipe, 40)
    parameters = MasterParameters(model, roles(model), "float32")
    update = recipe.optimiser.build(parameters)
    growth = Growth(model, parameters, update)
    update.step(torch.ones_like(parameters.gradient), 1.0, torch.tensor(1.0))
    depths: list[int] = []
    for phase in (0, 1, 1, 2):
        growth.before_step(Place(0, 0.0, phase))
        depths.append(model.encoder.running)
        blocks = [[p.detach().clone() for p in b.parameters()] for b in model.encoder.blocks]
        assert any(moment.any() for moment in update.state().values()) != (phase > 0)
    assert depths == [1, 2, 2, 4]
    for upper, lower in ((1, 0), (2, 0), (3, 1)):
        assert all(torch.equal(a, b) for a, b in zip(blocks[upper], blocks[lower], strict=True))


def test_an_optimiser_that_begins_anew_begins_as_it_did() -> None:
    recipe = growing("optimiser={kind: adagrad, start: 0.5}")
    model = Model.build(recipe, 40)
    parameters = MasterParameters(model, roles(model), "float32")
    update = recipe.optimiser.build(parameters)
    first = {name: kept.clone() for name, kept in update.state().items()}
    update.step(torch.ones_like(parameters.gradient), 1.0, torch.tensor(1.0))
    update.reset()
    assert all(torch.equal(kept, first[name]) for name, kept in update.state().items())


@pytest.mark.parametrize("stop", [2, 3, 6])
def test_a_stop_before_or_after_the_copy_changes_nothing(
    data: Data, tmp_path: Path, stop: int
) -> None:
    recipe = growing("steps=10", "checkpoint_every=1")
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(stop))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("phases=[{depth: 0.5}]", "ends as 1"),
        ("phases=[{}, {depth: 0.5}, {}]", "only grow"),
        ("encoder.depth.sharing=all", "cannot be stacked"),
    ],
)
def test_what_cannot_be_stacked_is_refused(change: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        growing(change)
