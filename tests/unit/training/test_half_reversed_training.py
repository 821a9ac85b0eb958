"""Steps with half of the sequences reversed, and their segment memory."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertwright.batches.batch import Batch
from bertwright.data.shards.dataset import Dataset
from bertwright.recipes import Recipe
from bertwright.training.clock import TrainingClock
from bertwright.training.evaluation.held_out import make_held_out_evaluation
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining_batches import PretrainingBatches
from toy_recipes import LENGTH, toy

IN_ORDER = ("assembly={kind: half-reversed, of: contiguous}", "encoder.memory_length=16")
PUBLISHED = ("encoder.memory_length=16",)
PAIRS = ("assembly={kind: half-reversed, of: segment-pair}", "encoder.memory_length=0")
CHANGES = ("text.tokenizer.kind=wordpiece", "steps=8", "max_grad_norm=null")


def xlnet(*changes: str) -> Recipe:
    return toy("xlnet", *CHANGES, *changes, f"assembly.length={LENGTH}")


def steps(recipe: Recipe, data: Dataset, number: int) -> list[list[Batch]]:
    """Return the micro-batches of the first steps."""
    source, num_sequences, batches = PretrainingBatches(recipe, data), 0, list[list[Batch]]()
    clock = TrainingClock(number, [1.0])
    for step in range(number):
        step_batch = source(clock.progress(step, num_sequences))
        batches.append(list(step_batch.micro_batches))
        num_sequences += step_batch.num_sequences
    return batches


def content(batches: list[Batch]) -> np.ndarray:
    """Return the text of the sequences of a step, without query positions."""
    return np.concatenate([batch.token_ids[:, :LENGTH] for batch in batches])


@pytest.mark.parametrize("micro_batch_size", [8, 3])
def test_both_halves_of_a_step_are_the_same_stretches(data: Dataset, micro_batch_size: int) -> None:
    recipe = toy("transformer-xl", *CHANGES, *IN_ORDER, f"assembly.length={LENGTH}")
    changed = recipe.model_copy(update={"micro_batch_tokens": micro_batch_size * LENGTH})
    plain = recipe.model_copy(update={"assembly": recipe.assembly.for_evaluation})
    source = PretrainingBatches(changed, data)
    half_size = source.batch_size(TrainingClock(1, [1.0]).progress(0)) // 2
    stretch = PretrainingBatches(plain, data).epoch_size(0, {}) // half_size
    token_ids = [content(batches) for batches in steps(changed, data, 2 * stretch)]
    by_sequence = np.stack(token_ids).transpose(1, 0, 2)
    for epoch in (by_sequence[:, :stretch], by_sequence[:, stretch:]):
        forward, backward = (half.reshape(half_size, -1) for half in np.split(epoch, 2))
        np.testing.assert_array_equal(backward, forward[:, ::-1])
        expected = PretrainingBatches(plain, data).unmasked_sequences(
            0, {}, np.arange(half_size * stretch), np.zeros(half_size * stretch, np.int64)
        )
        np.testing.assert_array_equal(forward.ravel(), expected.token_ids.ravel())
    begins = [not batches[0].continues_previous for batches in steps(changed, data, 2 * stretch)]
    assert np.flatnonzero(begins).tolist() == [0, stretch]


def test_shuffled_sequences_are_in_both_halves(data: Dataset) -> None:
    for batches in steps(xlnet(*PAIRS), data, 4):
        end_id = data.tokenizer.special_tokens.end
        for one, other in zip(*np.split(content(batches), 2), strict=True):
            last = np.flatnonzero(one == end_id)[-1]
            np.testing.assert_array_equal(other[1:last], one[1:last][::-1])
            np.testing.assert_array_equal(other[[0, last]], one[[0, last]])
        position = np.concatenate([batch.token_info.position_ids for batch in batches])
        assert (np.diff(position[:4, :5]) == 1).all()
        assert (np.diff(position[4:, :5]) == -1).all()


def test_an_epoch_reads_every_sequence_once_in_both_directions(data: Dataset) -> None:
    source = PretrainingBatches(xlnet(*PAIRS), data)
    num_sequences = source.epoch_size(0, {}) // 2
    token_ids = np.concatenate(
        [content(b) for b in steps(xlnet(*PAIRS), data, -(-num_sequences // 4))]
    )
    first = token_ids.reshape(-1, 2, 4, LENGTH)[:, 0].reshape(-1, LENGTH)[:num_sequences]
    sequences = source.unmasked_sequences(
        0, {}, np.arange(num_sequences), np.zeros(num_sequences, np.int64)
    ).token_ids
    assert sorted(map(bytes, first)) == sorted(map(bytes, sequences))


def test_an_odd_batch_size_is_rounded_up(data: Dataset) -> None:
    progress = TrainingClock(1, [1.0]).progress(0)
    for size in (5, 6):
        recipe = xlnet(*PAIRS, f"batch_tokens={size * LENGTH}")
        assert PretrainingBatches(recipe, data).batch_size(progress) == 6


def test_held_out_text_is_not_reversed(data: Dataset) -> None:
    for changes in (PAIRS, IN_ORDER, PUBLISHED):
        recipe = xlnet(*changes)
        plain = recipe.model_copy(update={"assembly": recipe.assembly.for_evaluation})
        evaluation, expected = (make_held_out_evaluation(r, 0, data, 400) for r in (recipe, plain))
        for one, other in zip(evaluation.batches, expected.batches, strict=True):
            assert one.token_info.is_backward is None
            np.testing.assert_array_equal(one.token_ids, other.token_ids)


def test_a_run_with_memory_in_both_directions_is_resumed(data: Dataset, tmp_path: Path) -> None:
    recipe = xlnet(*PUBLISHED, "checkpoint_every=1")
    result = pretrain(recipe, data, tmp_path / "by_sequence")

    def stop(checkpoints) -> None:
        if (checkpoints.folder / "step-00000005").exists():
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    again = pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert result.metrics == again.metrics
    by_sequence, cut = (
        load_file(tmp_path / name / "model.safetensors") for name in ("by_sequence", "cut")
    )
    assert all(torch.equal(cut[name], weight) for name, weight in by_sequence.items())


def test_micro_batches_do_not_change_a_step(data: Dataset, tmp_path: Path) -> None:
    trained: list[dict[str, torch.Tensor]] = []
    for sequences in (8, 3):
        recipe = xlnet(*PUBLISHED, f"micro_batch_tokens={sequences * LENGTH}")
        pretrain(recipe, data, tmp_path / str(sequences))
        trained.append(load_file(tmp_path / str(sequences) / "model.safetensors"))
    for name, weight in trained[0].items():
        torch.testing.assert_close(trained[1][name], weight, atol=1e-4, rtol=1e-3)
