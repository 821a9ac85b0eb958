"""Laws of the batches that a recipe draws."""

import numpy as np
import pytest
from small_recipe import small

from bertwright.examples.batches import Batch
from bertwright.text.shards import Data
from bertwright.training.clock import Clock, Place
from bertwright.training.distributed import Processes
from bertwright.training.recipe_batches import BATCH_STAGES, RecipeBatches


def whole(batches: list[Batch]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The pieces of several batches below each other, and what they ask."""
    pieces = np.concatenate([b.pieces for b in batches])
    length = pieces.shape[1]
    targets: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        for name, question in batch.questions.items():
            asked = np.stack([question.where + batch.first_row * length, question.target], axis=1)
            targets.setdefault(name, []).append(asked[question.weight > 0])
    return pieces, {name: np.concatenate(parts) for name, parts in targets.items()}


def places(recipe, source: RecipeBatches) -> list[Place]:
    clock = Clock(recipe.steps, [phase.share for phase in recipe.phases])
    found: list[Place] = []
    rows = 0
    for step in range(recipe.steps):
        found.append(clock.place(step, rows))
        rows += source(found[-1]).num_rows
    return found


def assert_same(a: list[Batch], b: list[Batch]) -> None:
    (pieces_a, asked_a), (pieces_b, asked_b) = whole(a), whole(b)
    np.testing.assert_array_equal(pieces_a, pieces_b)
    assert asked_a.keys() == asked_b.keys()
    for name in asked_a:
        np.testing.assert_array_equal(asked_a[name], asked_b[name])


@pytest.mark.parametrize("micro_batch_tokens", [32, 64, 96])
def test_micro_batches_are_cuts_of_the_same_rows(data: Data, micro_batch_tokens: int) -> None:
    one = RecipeBatches(small(), data)
    many = RecipeBatches(small("modern", f"micro_batch_tokens={micro_batch_tokens}"), data)
    for place in places(small(), one):
        a, b = one(place), many(place)
        assert len(b.micro_batches) > 1 == len(a.micro_batches)
        assert all(m.pieces.size <= micro_batch_tokens for m in b.micro_batches)
        assert_same(list(a.micro_batches), list(b.micro_batches))
        assert a.counts == b.counts
        assert a.num_tokens == b.num_tokens


@pytest.mark.parametrize("world", [2, 3])
def test_processes_take_parts_of_the_same_rows(data: Data, world: int) -> None:
    one = RecipeBatches(small(), data)
    for place in places(small(), one)[::5]:
        parts = [
            RecipeBatches(small(), data, Processes(rank, world))(place) for rank in range(world)
        ]
        assert_same(list(one(place).micro_batches), [m for p in parts for m in p.micro_batches])
        assert {p.num_rows for p in parts} == {one(place).num_rows}
        for name, count in one(place).counts.items():
            assert sum(p.counts[name] for p in parts) == count


def test_every_row_is_read_once_in_an_epoch(data: Data) -> None:
    source = RecipeBatches(small(), data)
    planned = small().assembly_of(0).plan(data.split("train"), data.tokenizer.specials, seed=0)
    everything = np.arange(planned.num_rows)
    for epoch in range(2):
        rows = planned.rows(everything, epoch).pieces
        first = epoch * planned.num_rows
        steps = [source(Place(0, 0.0, rows=first + r)) for r in range(0, planned.num_rows, 8)]
        read = np.concatenate([s.micro_batches[0].pieces for s in steps])[: planned.num_rows]
        assert sorted(map(bytes, read)) == sorted(map(bytes, rows))
        assert not np.array_equal(read, rows)


def test_batches_grow_in_stages(data: Data) -> None:
    recipe = small("modern", "batch_tokens={kind: linear, from: 64, to: 512}", "steps=100")
    source = RecipeBatches(recipe, data)
    clock = Clock(100, [phase.share for phase in recipe.phases])
    rows = [source.num_rows(clock.place(step)) for step in range(100)]
    assert rows == sorted(rows)
    assert (rows[0], rows[-1]) == (2, 16)
    assert len(set(rows)) <= BATCH_STAGES


def test_there_is_a_row_for_every_process(data: Data) -> None:
    recipe = small("modern", "batch_tokens=32")
    assert RecipeBatches(recipe, data, Processes(0, 4)).num_rows(Place(0, 0.0)) == 4


def test_weights_follow_the_phase_that_states_them(data: Data) -> None:
    ramp = "{kind: linear, from: 1, to: 3}"
    recipe = small(
        "bert",
        f"objectives.masked.weight={ramp}",
        "phases=[{share: 1}, {share: 1, objectives: {masked: {}}}]",
    )
    source = RecipeBatches(recipe, data)
    assert source.weights(Place(1, 0.25, 0, 0.5)) == {"masked": 1.5, "next-sentence": 1.0}
    assert source.weights(Place(3, 0.75, 1, 0.5)) == {"masked": 2.0}
