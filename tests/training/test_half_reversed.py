"""Steps of which one half is read from its end, and what each half remembers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertwright.examples.batches import Batch
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clock import Clock
from bertwright.training.evaluation import held_out
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches
from recipes_at_toy_size import LENGTH, toy

IN_ORDER = ("assembly={kind: half-reversed, of: contiguous}", "encoder.memory=16")
PAIRS = ("assembly={kind: half-reversed, of: segment-pair}",)
CHANGES = ("text.tokenizer.kind=wordpiece", "steps=8", "clip=null")


def xlnet(*changes: str) -> Recipe:
    return toy("xlnet", *CHANGES, *changes, f"assembly.length={LENGTH}")


def steps(recipe: Recipe, data: Data, number: int) -> list[list[Batch]]:
    """The micro-batches of the first steps."""
    source, rows, found = RecipeBatches(recipe, data), 0, list[list[Batch]]()
    clock = Clock(number, [1.0])
    for step in range(number):
        drawn = source(clock.place(step, rows))
        found.append(list(drawn.micro_batches))
        rows += drawn.num_rows
    return found


def content(batches: list[Batch]) -> np.ndarray:
    """The text of the rows of a step, without the places that ask."""
    return np.concatenate([batch.pieces[:, :LENGTH] for batch in batches])


@pytest.mark.parametrize("micro_rows", [8, 3])
def test_both_halves_of_a_step_are_the_same_stretches(data: Data, micro_rows: int) -> None:
    recipe = toy("transformer-xl", *CHANGES, *IN_ORDER, f"assembly.length={LENGTH}")
    changed = recipe.model_copy(update={"micro_batch_tokens": micro_rows * LENGTH})
    plain = recipe.model_copy(update={"assembly": recipe.assembly.evaluated})
    source = RecipeBatches(changed, data)
    at_once = source.num_rows(Clock(1, [1.0]).place(0)) // 2
    stretch = RecipeBatches(plain, data).rows_in_epoch(0, {}) // at_once
    read = [content(batches) for batches in steps(changed, data, 2 * stretch)]
    whole = np.stack(read).transpose(1, 0, 2)
    for epoch in (whole[:, :stretch], whole[:, stretch:]):
        forward, backward = (half.reshape(at_once, -1) for half in np.split(epoch, 2))
        np.testing.assert_array_equal(backward, forward[:, ::-1])
        expected = RecipeBatches(plain, data).assembled(
            0, {}, np.arange(at_once * stretch), np.zeros(at_once * stretch, np.int64)
        )
        np.testing.assert_array_equal(forward.ravel(), expected.pieces.ravel())
    begins = [not batches[0].continues for batches in steps(changed, data, 2 * stretch)]
    assert np.flatnonzero(begins).tolist() == [0, stretch]


def test_rows_in_any_order_stand_in_both_halves(data: Data) -> None:
    for batches in steps(xlnet(*PAIRS), data, 4):
        pieces, special = content(batches), data.tokenizer.specials.end
        for one, other in zip(*np.split(pieces, 2), strict=True):
            last = np.flatnonzero(one == special)[-1]
            np.testing.assert_array_equal(other[1:last], one[1:last][::-1])
            np.testing.assert_array_equal(other[[0, last]], one[[0, last]])
        position = np.concatenate([batch.coordinates.position for batch in batches])
        assert (np.diff(position[:4, :5]) == 1).all()
        assert (np.diff(position[4:, :5]) == -1).all()


def test_every_row_is_read_once_in_an_epoch_in_both_directions(data: Data) -> None:
    source = RecipeBatches(xlnet(*PAIRS), data)
    num_rows = source.rows_in_epoch(0, {}) // 2
    read = np.concatenate([content(b) for b in steps(xlnet(*PAIRS), data, -(-num_rows // 4))])
    first = read.reshape(-1, 2, 4, LENGTH)[:, 0].reshape(-1, LENGTH)[:num_rows]
    rows = source.assembled(0, {}, np.arange(num_rows), np.zeros(num_rows, np.int64)).pieces
    assert sorted(map(bytes, first)) == sorted(map(bytes, rows))


def test_a_step_of_an_odd_number_of_rows_has_one_more(data: Data) -> None:
    place = Clock(1, [1.0]).place(0)
    for asked in (5, 6):
        recipe = xlnet(*PAIRS, f"batch_tokens={asked * LENGTH}")
        assert RecipeBatches(recipe, data).num_rows(place) == 6


def test_what_is_held_out_is_not_reversed(data: Data) -> None:
    for changes in (PAIRS, IN_ORDER):
        recipe = xlnet(*changes)
        plain = recipe.model_copy(update={"assembly": recipe.assembly.evaluated})
        found, expected = (held_out(r, 0, data, 400) for r in (recipe, plain))
        for one, other in zip(found.batches, expected.batches, strict=True):
            assert one.coordinates.backward is None
            np.testing.assert_array_equal(one.pieces, other.pieces)


def test_a_run_that_remembers_both_ways_is_stopped_and_resumed(data: Data, tmp_path: Path) -> None:
    recipe = xlnet(*IN_ORDER, "checkpoint_every=1")
    result = pretrain(recipe, data, tmp_path / "whole")

    def stop(checkpoints) -> None:
        if (checkpoints.folder / "step-00000005").exists():
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    again = pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert result.figures == again.figures
    whole, cut = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(cut[name], weight) for name, weight in whole.items())


def test_micro_batches_of_one_direction_and_of_both_are_the_same_step(
    data: Data, tmp_path: Path
) -> None:
    trained: list[dict[str, torch.Tensor]] = []
    for rows in (8, 3):
        recipe = xlnet(*IN_ORDER, f"micro_batch_tokens={rows * LENGTH}")
        pretrain(recipe, data, tmp_path / str(rows))
        trained.append(load_file(tmp_path / str(rows) / "model.safetensors"))
    for name, weight in trained[0].items():
        torch.testing.assert_close(trained[1][name], weight, atol=1e-4, rtol=1e-3)
