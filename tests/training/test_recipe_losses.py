"""What a recipe says of its losses: dropout by phase, and the z-loss."""

from pathlib import Path

import pytest
import torch
from small_recipe import small
from test_pretraining import assert_equal, stop_at

from bertwright.errors import UserError
from bertwright.model.model import Model, TensorBatch
from bertwright.text.shards import Data
from bertwright.training.clock import Clock, Place
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses

ONE_PHASE = ("encoder.positions.size=64", "phases=[{}]")
LATE = "phases=[{share: 0.5}, {share: 0.3, dropout: {kind: linear, from: 1, to: 0}}, {dropout: 0}]"


def losses_of(data: Data, place: Place, *changes: str) -> dict[str, float]:
    """The losses of the first batch as a place asks them, of one untrained BERT."""
    recipe = small("bert", *ONE_PHASE, *changes)
    model = Model.build(recipe, data.tokenizer.size)
    (batch,) = RecipeBatches(recipe, data)(Place(0, 0.0)).micro_batches
    found = RecipeLosses(recipe, model)(batch, place)
    return {name: float(loss.sum.detach()) for name, loss in found.items()}


def test_dropout_is_switched_off_by_its_phase(data: Data) -> None:
    clock = Clock(18, (0.5, 0.3, 1.0))
    before, off = clock.place(0), clock.place(17)
    assert off.phase == 2
    nothing = ("encoder.dropout=0", "encoder.mixer.dropout=0")
    assert losses_of(data, before, LATE) == losses_of(data, before)
    assert losses_of(data, off, LATE) == losses_of(data, off, LATE, *nothing)
    assert losses_of(data, off, LATE) != losses_of(data, before, LATE)


@pytest.mark.parametrize("off", ["phases=[{}]", "phases=[{dropout: 0}]"])
def test_only_use_leaves_every_second_block_out(data: Data, off: str) -> None:
    nothing = ("encoder.dropout=0", "encoder.mixer.dropout=0")
    every_second = ("encoder.depth.every=2", off, *nothing)
    assert losses_of(data, Place(0, 0.0), *every_second) == losses_of(data, Place(0, 0.0), *nothing)
    model = Model.build(small("bert", *ONE_PHASE, *every_second), data.tokenizer.size)
    pieces = torch.arange(5, 21)[None]
    with model.record("*") as values:
        model(pieces)
    assert not any(name.startswith("blocks.1.") for name in values)


def test_dropout_falls_as_its_schedule_says(data: Data) -> None:
    halfway = Place(7, 0.4, phase=1, phase_progress=0.5)
    weaker = ("encoder.dropout=0.05", "encoder.mixer.dropout=0.05")
    falling = losses_of(data, halfway, LATE)
    assert falling == losses_of(data, halfway, *weaker, "phases=[{}, {}]")


def test_a_run_whose_dropout_falls_resumes_bit_for_bit(data: Data, tmp_path: Path) -> None:
    changes = ("encoder.positions.size=64", LATE, "steps=9", "checkpoint_every=1")
    recipe = small("bert", *changes)
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(4))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_more_dropout_than_the_recipe_has_is_refused() -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        small("bert", "phases=[{dropout: 2}]")


def test_the_z_loss_of_a_recipe_is_in_training_and_in_no_evaluation(data: Data) -> None:
    plain, with_z = small("bert", *ONE_PHASE), small("bert", *ONE_PHASE, "output.z_loss=0.5")
    (batch,) = RecipeBatches(plain, data)(Place(0, 0.0)).micro_batches
    moved = TensorBatch(batch)
    models = [Model.build(recipe, data.tokenizer.size) for recipe in (plain, with_z)]
    first, second = (model.losses(moved, plain.objectives) for model in models)
    asked = moved.questions["masked"]
    states = models[0](moved.pieces, moved.coordinates).flatten(0, 1)[asked.where]
    log_z = torch.logsumexp(models[0].logits(states), 1)
    weight = torch.ones_like(log_z) if asked.weight is None else asked.weight
    expected = 0.5 * (log_z.square() * weight).sum()
    torch.testing.assert_close(second["masked"].sum - first["masked"].sum, expected)
    torch.testing.assert_close(second["next-sentence"].sum, first["next-sentence"].sum)
    with torch.no_grad():
        first, second = (model.losses(moved, plain.objectives) for model in models)
    assert torch.equal(first["masked"].sum, second["masked"].sum)
