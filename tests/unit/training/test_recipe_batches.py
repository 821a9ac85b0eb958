"""Pre-training batches."""

import numpy as np
import pytest

from bertwright.batches.batch import Batch
from bertwright.data.shards.dataset import Dataset
from bertwright.models.costs import micro_batch_tokens
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.pretraining_batches import MAX_BATCH_SIZES, PretrainingBatches
from bertwright.training.process_group import ProcessGroup
from small_recipe import small


def concatenate(batches: list[Batch]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the token ids and the targets (position, label) of several micro-batches."""
    token_ids = np.concatenate([b.token_ids for b in batches])
    length = token_ids.shape[1]
    by_name: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        for name, targets in batch.targets.items():
            positions = targets.positions + batch.first_sequence * length
            pairs = np.stack([positions, targets.labels], axis=1)
            by_name.setdefault(name, []).append(pairs[targets.weights > 0])
    return token_ids, {name: np.concatenate(parts) for name, parts in by_name.items()}


def progress_of_steps(recipe, source: PretrainingBatches) -> list[Progress]:
    clock = TrainingClock(recipe.steps, [phase.fraction for phase in recipe.phases])
    steps: list[Progress] = []
    num_sequences = 0
    for step in range(recipe.steps):
        steps.append(clock.progress(step, num_sequences))
        num_sequences += source(steps[-1]).num_sequences
    return steps


def assert_same(a: list[Batch], b: list[Batch]) -> None:
    (token_ids_a, targets_a), (token_ids_b, targets_b) = concatenate(a), concatenate(b)
    np.testing.assert_array_equal(token_ids_a, token_ids_b)
    assert targets_a.keys() == targets_b.keys()
    for name in targets_a:
        np.testing.assert_array_equal(targets_a[name], targets_b[name])


@pytest.mark.parametrize("micro_batch_tokens", [32, 64, 96])
def test_micro_batches_split_the_same_sequences(data: Dataset, micro_batch_tokens: int) -> None:
    one = PretrainingBatches(small(), data)
    many = PretrainingBatches(small("modern", f"micro_batch_tokens={micro_batch_tokens}"), data)
    for progress in progress_of_steps(small(), one):
        a, b = one(progress), many(progress)
        assert len(b.micro_batches) > 1 == len(a.micro_batches)
        assert all(m.token_ids.size <= micro_batch_tokens for m in b.micro_batches)
        assert_same(list(a.micro_batches), list(b.micro_batches))
        assert a.loss_counts == b.loss_counts
        assert a.num_tokens == b.num_tokens


@pytest.mark.parametrize("world", [2, 3])
def test_processes_split_the_same_sequences(data: Dataset, world: int) -> None:
    one = PretrainingBatches(small(), data)
    for progress in progress_of_steps(small(), one)[::5]:
        parts = [
            PretrainingBatches(small(), data, ProcessGroup(rank, world))(progress)
            for rank in range(world)
        ]
        assert_same(list(one(progress).micro_batches), [m for p in parts for m in p.micro_batches])
        assert {p.num_sequences for p in parts} == {one(progress).num_sequences}
        for name, count in one(progress).loss_counts.items():
            assert sum(p.loss_counts[name] for p in parts) == count


def test_an_epoch_reads_every_sequence_once(data: Dataset) -> None:
    batches = PretrainingBatches(small(), data)
    input_format = small().input_format_of(0)
    source = input_format.plan(data.split("train"), data.tokenizer.special_tokens, seed=0)
    size = source.num_sequences
    for epoch in range(2):
        expected = source.sequences(np.arange(size), epoch).token_ids
        steps = [
            batches(Progress(0, 0.0, num_sequences=epoch * size + first))
            for first in range(0, size, 8)
        ]
        token_ids = np.concatenate([s.micro_batches[0].token_ids for s in steps])[:size]
        assert sorted(map(bytes, token_ids)) == sorted(map(bytes, expected))
        assert not np.array_equal(token_ids, expected)


@pytest.mark.parametrize(
    "changes",
    [
        ("batch_tokens={kind: linear, from: 512, to: 64}",),
        ("phases=[{batch: 0.5}, {batch: 4, length: 16}]", "micro_batch_tokens=256"),
        ("micro_batch_tokens=8", "batch_tokens=8"),
        ("assembly={kind: sentence-groups, sentences: 1, copies: 2}", "micro_batch_tokens=64"),
    ],
)
def test_costs_know_the_largest_micro_batch(data: Dataset, changes: tuple[str, ...]) -> None:
    name = "simcse" if "sentence-groups" in changes[0] else "roberta"
    recipe = small(name, "text.tokenizer.kind=wordpiece", *changes)
    batches = PretrainingBatches(recipe, data)
    largest = [0] * len(recipe.phases)
    for progress in progress_of_steps(recipe, batches):
        sizes = [batch.token_ids.size for batch in batches(progress).micro_batches]
        largest[progress.phase] = max(largest[progress.phase], *sizes)
    assert largest == [micro_batch_tokens(recipe, phase) for phase in range(len(recipe.phases))]


def test_batches_grow_in_stages(data: Dataset) -> None:
    recipe = small("modern", "batch_tokens={kind: linear, from: 64, to: 512}", "steps=100")
    source = PretrainingBatches(recipe, data)
    clock = TrainingClock(100, [phase.fraction for phase in recipe.phases])
    sizes = [source.batch_size(clock.progress(step)) for step in range(100)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (2, 16)
    assert len(set(sizes)) <= MAX_BATCH_SIZES


def test_every_process_has_a_sequence(data: Dataset) -> None:
    recipe = small("modern", "batch_tokens=32")
    assert PretrainingBatches(recipe, data, ProcessGroup(0, 4)).batch_size(Progress(0, 0.0)) == 4


def test_loss_weights_follow_the_phase_that_defines_them(data: Dataset) -> None:
    ramp = "{kind: linear, from: 1, to: 3}"
    recipe = small(
        "bert",
        f"objectives.masked.weight={ramp}",
        "phases=[{fraction: 1}, {fraction: 1, objectives: {masked: {}}}]",
    )
    source = PretrainingBatches(recipe, data)
    assert source.loss_weights(Progress(1, 0.25, 0, 0.5)) == {"masked": 1.5, "next-sentence": 1.0}
    assert source.loss_weights(Progress(3, 0.75, 1, 0.5)) == {"masked": 2.0}
