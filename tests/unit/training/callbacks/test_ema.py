"""The moving average of the parameters."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.core.schedules import ConstantSchedule, LinearSchedule, MeanDecay
from bertwright.data.shards.dataset import Dataset
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.training.callbacks.ema import ExponentialMovingAverage
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.loop import train
from bertwright.training.pretraining.pretrain import pretrain
from run_folders import assert_equal, evaluations_of, stop_at
from small_recipe import small, stacking_recipe
from toy_training import Net, Toy, net_roles, weights

CHANGES = ("steps=6", "checkpoint_every=1", "phases=[{}]")


def test_the_average_follows_its_formula() -> None:
    parameters = MasterParameters(Net(), net_roles(Net()), "float32")
    average = ExponentialMovingAverage(parameters, LinearSchedule(start=0.5, end=0.9))
    expected = parameters.master.double()
    for step in range(5):
        parameters.master.add_(torch.randn(len(parameters.master)))
        average.after_update(Progress(step, step / 5))
        decay = 0.5 + 0.4 * step / 5
        expected = decay * expected + (1 - decay) * parameters.master.double()
    torch.testing.assert_close(average.average.double(), expected, atol=1e-6, rtol=1e-6)


def averages_over(decay: MeanDecay, progress: list[Progress]) -> tuple[list[Tensor], list[Tensor]]:
    """Return parameters that change at random, and their average, after each step."""
    parameters = MasterParameters(Net(), net_roles(Net()), "float32")
    average = ExponentialMovingAverage(parameters, decay)
    visited, averages = list[Tensor](), list[Tensor]()
    for step in progress:
        parameters.master.add_(torch.randn(len(parameters.master)))
        average.after_update(step)
        visited.append(parameters.master.clone())
        averages.append(average.average.clone())
    return visited, averages


@pytest.mark.parametrize(("last", "num_averaged"), [(0.2, 4), (0.35, 7), (1.0, 20)])
def test_the_mean_gives_all_last_steps_the_same_weight(last: float, num_averaged: int) -> None:
    clock = TrainingClock(20)
    steps = [clock.progress(step) for step in range(20)]
    visited, averages = averages_over(MeanDecay(last=last), steps)
    for number, average in enumerate(averages, 1):
        first = min(20 - num_averaged, number - 1)
        expected = torch.stack(visited[first:number]).mean(0)
        torch.testing.assert_close(average, expected, atol=1e-6, rtol=1e-6)


def test_the_mean_weighs_steps_by_their_part_of_the_time() -> None:
    """A step that begins before the last part counts for the rest of its time."""
    ends = [0.0, 0.3, 0.7, 0.76, 0.9, 1.0]
    steps = [
        Progress(number, start, midpoint=(start + stop) / 2)
        for number, (start, stop) in enumerate(pairwise(ends))
    ]
    visited, averages = averages_over(MeanDecay(last=0.5), steps)
    weights = (0.2, 0.06, 0.14, 0.1)
    expected = sum(w * v for w, v in zip(weights, visited[1:], strict=True)) / 0.5
    torch.testing.assert_close(averages[-1], expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_parameters_are_restored_after_using_the_average(precision: str) -> None:
    net = Net()
    parameters = MasterParameters(net, net_roles(net), precision)
    average = ExponentialMovingAverage(parameters, ConstantSchedule(value=0.5))
    parameters.master.add_(torch.randn(len(parameters.master)))
    parameters.refresh_compute()
    average.after_update(Progress(0, 0.0))
    master, compute = parameters.master.clone(), parameters.compute.clone()
    with average.use_average():
        assert torch.equal(parameters.master, average.average)
        assert torch.equal(net.first.weight, average.state()["first.weight"].to(compute.dtype))
    assert torch.equal(parameters.master, master)
    assert torch.equal(parameters.compute, compute)


def test_the_average_does_not_change_training() -> None:
    with_average, without = Toy(), Toy()
    job = with_average.job()
    job.callbacks = [ExponentialMovingAverage(job.parameters, ConstantSchedule(value=0.9))]
    train(job)
    train(without.job())
    assert torch.equal(weights(with_average), weights(without))


@pytest.mark.parametrize("decay", ["0.9", "{kind: mean, last: 0.7}"])
def test_the_saved_model_is_the_average_and_a_stop_does_not_change_it(
    decay: str, data: Dataset, tmp_path: Path
) -> None:
    recipe = small("bert", "encoder.positions.size=64", f"ema_decay={decay}", *CHANGES)
    pretrain(recipe, data, tmp_path / "whole")
    last = tmp_path / "whole" / "checkpoints" / "step-00000006"
    average, trained = (
        load_file(last / f"{group}.safetensors") for group in ("callback-ema", "parameters")
    )
    saved = load_file(tmp_path / "whole" / "model.safetensors")
    assert all(torch.equal(saved[name], average[name]) for name in saved)
    assert any(not torch.equal(saved[name], trained[name]) for name in saved)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(3))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_evaluations_use_the_average(data: Dataset, tmp_path: Path) -> None:
    """With a decay near 1 the average and its loss stay at their initial values."""
    changes = ("encoder.positions.size=64", "phases=[{}]", "steps=8", "evaluate_every=4")
    still = small(
        "bert", *changes, "optimiser.learning_rate=1e-2", "schedule=1", "ema_decay=0.9999999"
    )
    pretrain(still, data, tmp_path / "still")
    pretrain(small("bert", *changes, "schedule=1e-9"), data, tmp_path / "first")
    losses, expected = (
        [line["heldout_masked_loss"] for line in evaluations_of(tmp_path / name)]
        for name in ("still", "first")
    )
    assert len(losses) == 2
    assert losses == pytest.approx(expected, abs=1e-4)


def test_an_average_grows_with_its_stack(data: Dataset, tmp_path: Path) -> None:
    """The average hardly moves, so stacked blocks stay copies of the lower ones."""
    recipe = stacking_recipe("steps=10", "ema_decay=0.9999999", "checkpoint_every=10")
    pretrain(recipe, data, tmp_path / "out")
    saved = load_file(tmp_path / "out" / "model.safetensors")
    name = "encoder.blocks.{}.sublayers.feed_forward.up.weight"
    blocks = [saved[name.format(i)] for i in range(4)]
    for upper, lower in ((1, 0), (2, 0), (3, 1)):
        torch.testing.assert_close(blocks[upper], blocks[lower], atol=1e-5, rtol=0)


@pytest.mark.parametrize("decay", ["1", "-0.1", "{kind: linear, from: 0, to: 1}"])
def test_an_invalid_decay_is_rejected(decay: str) -> None:
    with pytest.raises(UserError, match="at least 0 and below 1"):
        small("bert", f"ema_decay={decay}")
