"""Batches and lengths that grow during a run."""

from pathlib import Path

import pytest

from bertwright.data.shards.dataset import Dataset
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining_batches import PretrainingBatches
from run_folders import assert_equal, stop_at
from small_recipe import small

RAMP = (
    "encoder.positions.size=64",
    "batch_tokens={kind: linear, from: 128, to: 576}",
    "objectives.masked.selection.masking_rate={kind: linear, from: 0.4, to: 0.15}",
    "phases=[{fraction: 0.6, length: 16}, {fraction: 0.4, length: 64, batch: 0.5}]",
)
"""A growing batch: a phase of short sequences, then one of long ones with half the batch."""


def test_batches_grow_in_eight_sizes(data: Dataset) -> None:
    batches = PretrainingBatches(small("bert", *RAMP), data)
    clock = TrainingClock(400, (0.6, 0.4))
    sizes = [batches.batch_size(clock.progress(step)) for step in range(400)]
    # 128 tokens are 8 sequences of 16, and each of seven steps up to 576 adds 4.
    assert sizes[:240] == [8 + 4 * round(7 * step / 400) for step in range(240)]
    assert (sizes[240], sizes[399]) == (3, 4)  # half of 384 and 576 tokens, length 64


def test_a_short_ramp_ends_on_time(data: Dataset) -> None:
    ramp = "{kind: parts, parts: [{fraction: 0.1, value: {kind: linear, from: 128, to: 576}}, "
    recipe = small(
        "bert", *RAMP, f"batch_tokens={ramp}{{fraction: 0.9, value: 576}}]}}", "phases=[{}]"
    )
    batches, clock = PretrainingBatches(recipe, data), TrainingClock(400)
    sizes = [batches.batch_size(clock.progress(step)) for step in range(400)]
    assert sizes[:3] == [4, 4, 4]
    assert sizes[40:] == [18] * 360
    assert sizes[:40] == sorted(sizes[:40])
    assert len(set(sizes)) == 8


def test_growing_batches_read_every_sequence_once(data: Dataset, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    get_batch = PretrainingBatches.__call__

    def record(batches: PretrainingBatches, progress: Progress):
        batch = get_batch(batches, progress)
        steps.append((progress.num_sequences, batch.num_sequences))
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PretrainingBatches, "__call__", record)
        pretrain(small("bert", *RAMP, "steps=10"), data, tmp_path / "out")
    assert len({number for _, number in steps}) > 2
    num_read = 0
    for first, number in steps:
        assert first == num_read
        num_read += number


@pytest.mark.parametrize("stop", [2, 5, 6, 8])
def test_a_stop_on_a_ramp_changes_nothing(data: Dataset, tmp_path: Path, stop: int) -> None:
    recipe = small("bert", *RAMP, "steps=10", "checkpoint_every=1", "micro_batch_tokens=128")
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(stop)
        )
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")
