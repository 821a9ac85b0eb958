"""Losses of a recipe: dropout by phase, and the z-loss."""

from pathlib import Path

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import DeviceBatch, Model
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.pretraining.losses import PretrainingLosses
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining_batches import PretrainingBatches
from run_folders import assert_equal, stop_at
from small_recipe import small

ONE_PHASE = ("encoder.positions.size=64", "phases=[{}]")
FALLING_DROPOUT = (
    "phases=[{fraction: 0.5}, {fraction: 0.3, dropout: {kind: linear, from: 1, to: 0}}, "
    "{dropout: 0}]"
)


def losses_of(data: Dataset, progress: Progress, *changes: str) -> dict[str, float]:
    """Return the losses of the first batch of an untrained BERT."""
    recipe = small("bert", *ONE_PHASE, *changes)
    model = Model.build(recipe, data.tokenizer.vocab_size)
    (batch,) = PretrainingBatches(recipe, data)(Progress(0, 0.0)).micro_batches
    losses = PretrainingLosses(recipe, model)(batch, progress)
    return {name: float(loss.sum.detach()) for name, loss in losses.items()}


def test_dropout_is_switched_off_by_its_phase(data: Dataset) -> None:
    clock = TrainingClock(18, (0.5, 0.3, 1.0))
    before, off = clock.progress(0), clock.progress(17)
    assert off.phase == 2
    no_dropout = ("encoder.dropout=0", "encoder.mixer.dropout=0")
    assert losses_of(data, before, FALLING_DROPOUT) == losses_of(data, before)
    assert losses_of(data, off, FALLING_DROPOUT) == losses_of(
        data, off, FALLING_DROPOUT, *no_dropout
    )
    assert losses_of(data, off, FALLING_DROPOUT) != losses_of(data, before, FALLING_DROPOUT)


@pytest.mark.parametrize("off", ["phases=[{}]", "phases=[{dropout: 0}]"])
def test_every_second_block_is_skipped_at_inference(data: Dataset, off: str) -> None:
    no_dropout = ("encoder.dropout=0", "encoder.mixer.dropout=0")
    every_second = ("encoder.depth.every=2", off, *no_dropout)
    assert losses_of(data, Progress(0, 0.0), *every_second) == losses_of(
        data, Progress(0, 0.0), *no_dropout
    )
    model = Model.build(small("bert", *ONE_PHASE, *every_second), data.tokenizer.vocab_size)
    with model.record("*") as values:
        model(torch.arange(5, 21)[None])
    assert not any(name.startswith("blocks.1.") for name in values)


def test_dropout_follows_its_schedule(data: Dataset) -> None:
    halfway = Progress(7, 0.4, phase=1, phase_fraction=0.5)
    weaker = ("encoder.dropout=0.05", "encoder.mixer.dropout=0.05")
    falling = losses_of(data, halfway, FALLING_DROPOUT)
    assert falling == losses_of(data, halfway, *weaker, "phases=[{}, {}]")


def test_a_run_with_falling_dropout_resumes_bit_for_bit(data: Dataset, tmp_path: Path) -> None:
    changes = ("encoder.positions.size=64", FALLING_DROPOUT, "steps=9", "checkpoint_every=1")
    recipe = small("bert", *changes)
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(4))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_a_dropout_factor_above_1_is_rejected() -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        small("bert", "phases=[{dropout: 2}]")


def test_the_z_loss_is_part_of_training_only(data: Dataset) -> None:
    plain, with_z = small("bert", *ONE_PHASE), small("bert", *ONE_PHASE, "output.z_loss=0.5")
    (batch,) = PretrainingBatches(plain, data)(Progress(0, 0.0)).micro_batches
    device_batch = DeviceBatch(batch)
    models = [Model.build(recipe, data.tokenizer.vocab_size) for recipe in (plain, with_z)]
    first, second = (model.losses(device_batch, plain.objectives) for model in models)
    targets = device_batch.targets["masked"]
    states = models[0](device_batch.token_ids, device_batch.token_info).flatten(0, 1)[
        targets.positions
    ]
    log_z = torch.logsumexp(models[0].logits(states), 1)
    weight = torch.ones_like(log_z) if targets.weights is None else targets.weights
    expected = 0.5 * (log_z.square() * weight).sum()
    torch.testing.assert_close(second["masked"].sum - first["masked"].sum, expected)
    torch.testing.assert_close(second["next-sentence"].sum, first["next-sentence"].sum)
    with torch.no_grad():
        first, second = (model.losses(device_batch, plain.objectives) for model in models)
    assert torch.equal(first["masked"].sum, second["masked"].sum)
