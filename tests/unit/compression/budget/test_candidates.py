"""Candidates are measured once, and only as far as the goal needs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertwright.compression.budget import candidates
from bertwright.compression.budget.candidates import (
    NUM_TIMED,
    NUM_WARMUP,
    WEIGHTS_FORMAT,
    ArtefactFormat,
    BudgetCandidate,
    CandidatePool,
    measure_milliseconds,
)
from bertwright.compression.budget.goal import Goal
from bertwright.compression.budget.shapes import ModelShape
from bertwright.models.saving import WEIGHTS_FILE
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from small_encoders import Pretrained
from small_tasks import classes

INT8, PRUNED = ArtefactFormat("int8"), ArtefactFormat("weights", prunes_vocabulary=True)


@pytest.fixture
def model(pretrained: Pretrained) -> FineTunedModel:
    task = Task("colours", OutputType.parse("class"))
    data = {"train": classes()[:4], "dev": classes()[:4]}
    return finetune(pretrained(), task, **data, epochs=0, compile=False).model


class MeasuredPool:
    """A pool with made-up files and latencies: a block takes 100 bytes, and a model 1000.

    A pruned vocabulary saves 300 bytes, and 8 bits half of them all.
    """

    def __init__(
        self, model: FineTunedModel, goal: Goal, work: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.written: list[Path] = []
        self.timed: list[str] = []
        self.log: list[str] = []
        patch.setattr(ArtefactFormat, "write", self._write)
        patch.setattr(candidates, "measure_milliseconds", self._time)
        self.pool = CandidatePool(model, goal, classes(), work, self.log.append)

    def _write(self, model: FineTunedModel, examples: Any, folder: Path) -> None:
        size = 1000 + 100 * len(model.task_model.encoder.blocks)
        size -= 300 * folder.name.endswith("pruned")
        folder.mkdir(parents=True)
        (folder / WEIGHTS_FILE).write_bytes(bytes(size // (1 + ("int8" in folder.name))))
        self.written.append(folder)

    def _time(self, folder: Path, goal: Goal) -> float:
        self.timed.append(folder.name)
        return 2.0 + 0.25 * len(self.timed)


def test_pruning_a_vocabulary_saves_the_same_in_every_shape(
    model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = MeasuredPool(model, Goal(), tmp_path, monkeypatch)
    sizes = {
        (layers, format): measured.pool.measure(ModelShape(layers), format).num_bytes
        for format in (PRUNED, ArtefactFormat("int8", True), WEIGHTS_FORMAT, INT8)
        for layers in (2, 1)
    }
    assert list(sizes.values()) == [900, 800, 450, 400, 1200, 1100, 600, 550]
    # The smaller one with fewer tokens is not built.
    assert len(measured.written) == 6
    assert [c.num_bytes for c in measured.pool.measured] == list(sizes.values())
    assert all(c.milliseconds is None for c in measured.pool.measured)
    assert not measured.timed


def test_latency_is_measured_once_by_shape_and_kind_and_only_below_the_size(
    model: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = Goal(max_bytes=1150, max_milliseconds=1)
    measured = MeasuredPool(model, goal, tmp_path, monkeypatch)
    latencies = [
        measured.pool.measure(ModelShape(layers), format).milliseconds
        for layers, format in [(2, WEIGHTS_FORMAT), (2, PRUNED), (1, PRUNED), (1, WEIGHTS_FORMAT)]
        for _ in range(2)
    ]
    assert latencies == [None, None, 2.25, 2.25, 2.5, 2.5, 2.5, 2.5]
    assert measured.timed == ["2-1.0-weights-all", "1-1.0-weights-all"]
    assert measured.log == [
        "2 layers, weights: 0.0012 MB",
        "2 layers, weights, pruned vocabulary: 0.0009 MB, 2.25 ms",
        "1 layer, weights, pruned vocabulary: 0.0008 MB, 2.50 ms",
        "1 layer, weights: 0.0011 MB, 2.50 ms",
    ]


def test_the_cost_of_a_candidate() -> None:
    candidate = BudgetCandidate(ModelShape(3, 0.5), INT8, 2_500_000, None)
    assert candidate.name == "3 layers, 50% of heads and units, 8 bits"
    assert candidate.cost == "2.5 MB"
    timed = BudgetCandidate(ModelShape(3), PRUNED, 2_500_000, 5.25)
    assert timed.cost == "2.5 MB, 5.25 ms"


def test_latency_is_the_median_after_some_warm_up(
    model: FineTunedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock counts what the passes take: 9 seconds at first, and then 1, 2, 3, ..."""
    durations = [9.0] * NUM_WARMUP + [float(n) for n in range(1, NUM_TIMED + 1)]
    clock, shapes = SimpleNamespace(now=100.0), []

    def head_outputs(sequences: list[Any]) -> None:
        shapes.append((len(sequences), len(sequences[0].token_ids)))
        clock.now += durations[len(shapes) - 1]

    monkeypatch.setattr(model, "head_outputs", head_outputs)
    monkeypatch.setattr(candidates, "load", lambda folder: model)
    monkeypatch.setattr(candidates.time, "perf_counter", lambda: clock.now)
    milliseconds = measure_milliseconds(Path(), Goal(batch_size=2, sequence_length=7))
    assert milliseconds == 1000 * (NUM_TIMED + 1) / 2
    assert shapes == [(2, 7)] * (NUM_WARMUP + NUM_TIMED)
