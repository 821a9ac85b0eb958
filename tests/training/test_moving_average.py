"""The moving average of the parameters: its formula, who looks at it, and that it is resumed."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_recipe import small
from test_growth import growing
from test_pretraining import assert_equal, evaluations_of, stop_at
from toy import Net, Toy, net_roles, weights

from bertwright.errors import UserError
from bertwright.optimisers.parameters import MasterParameters
from bertwright.schedules import Constant, Linear
from bertwright.text.shards import Data
from bertwright.training.clock import Place
from bertwright.training.loop import train
from bertwright.training.moving_average import MovingAverage
from bertwright.training.pretraining import pretrain

CHANGES = ("moving_average=0.9", "steps=6", "checkpoint_every=1", "phases=[{}]")


def test_the_average_is_that_of_the_formula() -> None:
    parameters = MasterParameters(Net(), net_roles(Net()), "float32")
    average = MovingAverage(parameters, Linear(start=0.5, end=0.9))
    expected = parameters.master.double()
    for step in range(5):
        parameters.master.add_(torch.randn(len(parameters.master)))
        average.after_update(Place(step, step / 5))
        decay = 0.5 + 0.4 * step / 5
        expected = decay * expected + (1 - decay) * parameters.master.double()
    torch.testing.assert_close(average.average.double(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_is_lent_comes_back(precision: str) -> None:
    net = Net()
    parameters = MasterParameters(net, net_roles(net), precision)
    average = MovingAverage(parameters, Constant(value=0.5))
    parameters.master.add_(torch.randn(len(parameters.master)))
    parameters.refresh()
    average.after_update(Place(0, 0.0))
    master, compute = parameters.master.clone(), parameters.compute.clone()
    with average.lent():
        assert torch.equal(parameters.master, average.average)
        assert torch.equal(net.enter.weight, average.state()["enter.weight"].to(compute.dtype))
    assert torch.equal(parameters.master, master)
    assert torch.equal(parameters.compute, compute)


def test_training_does_not_look_at_it() -> None:
    with_average, without = Toy(), Toy()
    job = with_average.job()
    job.procedures = [MovingAverage(job.parameters, Constant(value=0.9))]
    train(job)
    train(without.job())
    assert torch.equal(weights(with_average), weights(without))


def test_the_saved_model_is_the_average_and_a_stop_changes_nothing(
    data: Data, tmp_path: Path
) -> None:
    recipe = small("bert", "encoder.positions.size=64", *CHANGES)
    pretrain(recipe, data, tmp_path / "whole")
    last = tmp_path / "whole" / "checkpoints" / "step-00000006"
    average, trained = (
        load_file(last / f"{group}.safetensors")
        for group in ("procedure-moving-average", "parameters")
    )
    saved = load_file(tmp_path / "whole" / "model.safetensors")
    assert all(torch.equal(saved[name], average[name]) for name in saved)
    assert any(not torch.equal(saved[name], trained[name]) for name in saved)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(3))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_evaluations_see_the_average(data: Data, tmp_path: Path) -> None:
    """With a decay near 1 the average stays what it was at first, and so does its loss."""
    changes = ("encoder.positions.size=64", "phases=[{}]", "steps=8", "evaluate_every=4")
    still = small("bert", *changes, "optimiser.rate=1e-2", "schedule=1", "moving_average=0.9999999")
    pretrain(still, data, tmp_path / "still")
    pretrain(small("bert", *changes, "schedule=1e-9"), data, tmp_path / "first")
    found, expected = (
        [line["heldout_masked_loss"] for line in evaluations_of(tmp_path / name)]
        for name in ("still", "first")
    )
    assert len(found) == 2
    assert found == pytest.approx(expected, abs=1e-4)


def test_an_average_grows_with_its_stack(data: Data, tmp_path: Path) -> None:
    """All of the average is the past, so what grew is a copy of what was below it."""
    recipe = growing("steps=10", "moving_average=0.9999999", "checkpoint_every=10")
    pretrain(recipe, data, tmp_path / "out")
    saved = load_file(tmp_path / "out" / "model.safetensors")
    name = "encoder.blocks.{}.sublayers.feed_forward.up.weight"
    blocks = [saved[name.format(i)] for i in range(4)]
    for upper, lower in ((1, 0), (2, 0), (3, 1)):
        torch.testing.assert_close(blocks[upper], blocks[lower], atol=1e-5, rtol=0)


@pytest.mark.parametrize("decay", ["1", "-0.1", "{kind: linear, from: 0, to: 1}"])
def test_a_decay_that_is_none_is_refused(decay: str) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        small("bert", f"moving_average={decay}")
