"""Random features of attention that are drawn again in training."""

from pathlib import Path

import pytest
import torch

from bertwright.data.shards.dataset import Dataset
from bertwright.models import Model
from bertwright.models.saving import load_model
from bertwright.modules.attention.random_features import RandomFeatureAttention
from bertwright.training.callbacks.feature_redraw import FeatureRedraw
from bertwright.training.clock import Progress
from bertwright.training.pretraining.pretrain import pretrain
from run_folders import assert_equal, stop_at
from toy_recipes import VOCABULARY, toy

RECIPE = ("text.tokenizer.kind=wordpiece", "encoder.mixer.redraw=3", "steps=7")


def features(model: Model) -> list[torch.Tensor]:
    attentions = [m for m in model.modules() if isinstance(m, RandomFeatureAttention)]
    return [attention.random_features.clone() for attention in attentions]


def test_every_block_has_new_features_after_some_steps() -> None:
    model = Model.build(toy("performer", *RECIPE), VOCABULARY)
    callback = FeatureRedraw(model, 3, seed=1)
    by_step: list[list[torch.Tensor]] = []
    for step in range(7):
        callback.before_step(Progress(step, 0.0))
        by_step.append(features(model))
    for step, (first, second) in enumerate(by_step):
        assert not torch.equal(first, second)
        assert torch.equal(first, by_step[step // 3 * 3][0])
        # Groups as large as the width of a head are orthogonal.
        products = first[:16] @ first[:16].T
        torch.testing.assert_close(products, torch.diag(products.diag()), atol=1e-4, rtol=0)
    assert not torch.equal(by_step[0][0], by_step[3][0])
    # A resumed run begins with another step.
    FeatureRedraw(model, 3, seed=1).before_step(Progress(5, 0.0))
    assert all(map(torch.equal, features(model), by_step[3]))


def test_a_run_that_ended_with_its_last_checkpoint_has_its_features() -> None:
    model, other = (Model.build(toy("performer", *RECIPE), VOCABULARY) for _ in range(2))
    callback = FeatureRedraw(model, 3, seed=1)
    callback.before_step(Progress(6, 0.0))
    FeatureRedraw(other, 3, seed=1).load(callback.state())
    assert all(map(torch.equal, features(other), features(model)))


def test_a_resumed_run_is_the_same_and_the_model_has_the_last_features(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = toy("performer", *RECIPE, "checkpoint_every=1")
    pretrain(recipe, data, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(5))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "resumed")
    pretrain(recipe, data, tmp_path / "resumed", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "resumed")
    model, _ = load_model(tmp_path / "whole")
    untrained = Model.build(recipe, data.tokenizer.vocab_size)
    FeatureRedraw(untrained, 3, recipe.seed).before_step(Progress(6, 0.0))
    assert all(map(torch.equal, features(model), features(untrained)))
