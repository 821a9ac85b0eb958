"""Batches and rows that grow along a run: their sizes, and that a run which stops goes on."""

from pathlib import Path

import pytest
from small_recipe import small
from test_pretraining import assert_equal, stop_at

from bertwright.text.shards import Data
from bertwright.training.clock import Clock, Place
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches

RAMP = (
    "encoder.positions.size=64",
    "batch_tokens={kind: linear, from: 128, to: 576}",
    "objectives.masked.selection.rate={kind: linear, from: 0.4, to: 0.15}",
    "phases=[{share: 0.6, length: 16}, {share: 0.4, length: 64, batch: 0.5}]",
)
"""A batch that grows with the run: in a phase of short rows, then half as large in one of long."""


def test_batches_grow_by_eighths_to_the_sizes_that_were_asked(data: Data) -> None:
    batches = RecipeBatches(small("bert", *RAMP), data)
    clock = Clock(400, (0.6, 0.4))
    rows = [batches.num_rows(clock.place(step)) for step in range(400)]
    # 128 tokens are 8 rows of 16, and each of seven steps up to 576 is 4 rows.
    assert rows[:240] == [8 + 4 * round(7 * step / 400) for step in range(240)]
    assert (rows[240], rows[399]) == (3, 4)  # 384 and 576 tokens, halved, in rows of 64


def test_a_short_ramp_ends_where_it_says(data: Data) -> None:
    ramp = "{kind: parts, parts: [{share: 0.1, value: {kind: linear, from: 128, to: 576}}, "
    recipe = small(
        "bert", *RAMP, f"batch_tokens={ramp}{{share: 0.9, value: 576}}]}}", "phases=[{}]"
    )
    batches, clock = RecipeBatches(recipe, data), Clock(400)
    rows = [batches.num_rows(clock.place(step)) for step in range(400)]
    assert rows[:3] == [4, 4, 4]
    assert rows[40:] == [18] * 360
    assert rows[:40] == sorted(rows[:40])
    assert len(set(rows)) == 8


def test_no_row_is_skipped_or_read_again_as_batches_grow(data: Data, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    drawn = RecipeBatches.__call__

    def noted(batches: RecipeBatches, place: Place):
        batch = drawn(batches, place)
        seen.append((place.rows, batch.num_rows))
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecipeBatches, "__call__", noted)
        pretrain(small("bert", *RAMP, "steps=10"), data, tmp_path / "out")
    assert len({number for _, number in seen}) > 2
    before = 0
    for first, number in seen:
        assert first == before
        before += number


@pytest.mark.parametrize("stop", [2, 5, 6, 8])
def test_a_stop_on_a_ramp_changes_nothing(data: Data, tmp_path: Path, stop: int) -> None:
    recipe = small("bert", *RAMP, "steps=10", "checkpoint_every=1", "micro_batch_tokens=128")
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(stop))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")
