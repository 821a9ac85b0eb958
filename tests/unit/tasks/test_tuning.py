"""Searches, cross-validation and learning curves."""

import logging
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.core.statistics import expected_best
from bertwright.tasks.catalogue import find_task, table_task
from bertwright.tasks.data.splits import stratified_folds
from bertwright.tasks.data.task_data import TaskData, hold_out
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.evaluator import EpochReport, flatten_scores
from bertwright.tasks.finetuning.run import no_reporter
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from bertwright.tasks.tuning import search as searching
from bertwright.tasks.tuning.cross_validation import cross_validate
from bertwright.tasks.tuning.learning_curve import compute_learning_curve
from bertwright.tasks.tuning.search import (
    SearchResult,
    SearchTrial,
    _OptunaPruning,
    search_grid,
    search_optuna,
)
from bertwright.training.clock import Progress, TrainingClock
from small_tasks import classes, numbers

DATA = TaskData(table_task("task", Columns()), train=classes(), dev=classes())
WITHOUT_DEV = TaskData(DATA.task, train=classes())
GROUPED = [find_task("rank"), find_task("retrieval")]
"""Tasks whose splits keep the examples of a query together."""
SETTINGS = {"dropout": 0.0, "weight_decay": 0.0, "compile": False}


def test_grid_search_tries_and_reports_all_settings(pretrained, monkeypatch) -> None:
    grid = {"batch_size": (8, 16), "learning_rate": (1e-4, 1e-3), "epochs": (1,)}
    monkeypatch.setitem(searching.GRIDS, "bert", grid)
    result = search_grid(pretrained(), [DATA], "bert", no_reporter, {**SETTINGS, "batch_size": 8})
    tried = [dict(trial.settings) for trial in result.trials]
    scale = 768 / 32
    assert [t["learning_rate"] for t in tried] == pytest.approx([1e-4 * scale, 1e-3 * scale])
    assert all("batch_size" not in t for t in tried), "configured settings are not searched"
    record = result.as_dict()
    assert len(record["trials"]) == 2
    assert record["summary"]["best"] == max(t.score for t in result.trials)
    assert result.best_result.scores[0] == record["summary"]["best"]


@pytest.mark.parametrize(
    ("grid", "decay", "layer_decay"), [("bert", 0.01, 1), ("roberta", 0.1, 1), ("electra", 0, 0.8)]
)
def test_grid_uses_the_weight_decay_of_its_paper(
    pretrained, monkeypatch, grid: Any, decay: float, layer_decay: float
) -> None:
    tried: list[FineTuningConfig] = []

    def untrained(model: Any, several: Any, *, make_reporter: Any, **settings: Any) -> Any:
        tried.append(FineTuningConfig.from_settings(settings))
        return SimpleNamespace(scores=[0.0])

    monkeypatch.setattr(searching, "finetune_tasks", untrained)
    search_grid(pretrained(), [DATA], grid, no_reporter, {})
    assert {config.weight_decay for config in tried} == {decay}
    assert {config.adaptation.layerwise_decay for config in tried} == {layer_decay}
    tried.clear()
    stated = {"weight_decay": 0.3, "adaptation": "lora"}
    search_grid(pretrained(), [DATA], grid, no_reporter, stated)
    assert {(config.weight_decay, config.adaptation.kind_name()) for config in tried} == {
        (0.3, "lora")
    }


def test_shared_blocks_drop_layer_decay_from_the_grid(pretrained) -> None:
    axes = searching._scale_grid(
        searching.GRIDS["electra"], FineTuningConfig(), pretrained("albert").model.recipe
    )
    assert "adaptation" not in axes
    assert "learning_rate" in axes


@pytest.mark.parametrize("kind", ["lora", "frozen", "adapters", "full"])
@pytest.mark.parametrize("system", ["bert", "modern"])
def test_grid_scales_learning_rates_to_the_default(pretrained, kind: str, system: str) -> None:
    base, recipe = (
        FineTuningConfig.from_settings({"adaptation": kind}),
        pretrained(system).model.recipe,
    )
    rates = searching._scale_grid({"learning_rate": (5e-5, 2e-5)}, base, recipe)["learning_rate"]
    usual = base.learning_rate_for(recipe)
    assert list(rates) == pytest.approx([usual, 0.4 * usual])


def test_configured_schedule_is_not_searched(pretrained, monkeypatch) -> None:
    monkeypatch.setitem(searching.GRIDS, "bert", {"warmup": (0.06,), "epochs": (1,)})
    stated = {**SETTINGS, "schedule": {"kind": "constant"}}
    result = search_grid(pretrained(), [DATA], "bert", no_reporter, stated)
    drawn = search_optuna(pretrained(), [DATA], 1, no_reporter, {**stated, "epochs": 1})
    assert all("warmup" not in trial.settings for trial in [*result.trials, *drawn.trials])


def test_pruned_trials_count_with_their_best_score() -> None:
    trials = [
        SearchTrial({}, [0.9, 0.7]),
        SearchTrial({}, None, 0.2),
        SearchTrial({}, None, 0.4),
        SearchTrial({}, [0.6]),
    ]
    record = SearchResult(trials).as_dict()
    summary = record["summary"]
    assert (summary["best"], summary["num_pruned"]) == (pytest.approx(0.8), 2)
    assert (summary["mean"], summary["median"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert len(record["expected_best"]) == len(trials)
    assert record["expected_best"][0] == pytest.approx(summary["mean"])
    assert record["trials"][1] == {"scores": None, "mean": None, "best_before_pruning": 0.2}


def test_pruning_uses_the_selection_score() -> None:
    class FakeTrial:
        record: ClassVar[list[float]] = []

        def report(self, value: float, step: int) -> None:
            self.record.append(value)

        def should_prune(self) -> bool:
            return len(self.record) > 2

    pruning = _OptunaPruning(FakeTrial(), RuntimeError)
    epochs = [
        {"a": {"accuracy": 0.9, "f1": 0.0}, "glue.b": {"f1": 0.1, "accuracy": 0.0}},
        {"a": {"accuracy": 0.2, "f1": 1.0}, "glue.b": {"f1": 1.0, "accuracy": 0.0}},
        {"task": {"accuracy": 0.4, "f1": 1.0}},
    ]
    with pytest.raises(RuntimeError):
        for scores in epochs:
            pruning.report_evaluation(Progress(0, 1), flatten_scores(scores))
    assert FakeTrial.record == [EpochReport(0, 1, 0.0, scores).score for scores in epochs]
    assert FakeTrial.record == pytest.approx([0.5, 0.6, 0.4])
    assert pruning.best == pytest.approx(0.6)


def test_optuna_search_is_reproducible(pretrained) -> None:
    first, again = (
        search_optuna(pretrained(), [DATA], 3, no_reporter, {**SETTINGS, "epochs": 1})
        for _ in range(2)
    )
    assert [t.as_dict() for t in first.trials] == [t.as_dict() for t in again.trials]
    assert len({t.settings["learning_rate"] for t in first.trials}) == 3


def test_an_error_in_a_trial_is_not_logged(pretrained, caplog: pytest.LogCaptureFixture) -> None:
    """It ends the search; Optuna would log its traceback too."""

    def fails(seed: int, clock: TrainingClock) -> NoReturn:
        raise UserError("no space left")

    logger = logging.getLogger("optuna")
    logger.addHandler(caplog.handler)
    try:
        with pytest.raises(UserError, match="no space left"):
            search_optuna(pretrained(), [DATA], 1, fails, {**SETTINGS, "epochs": 1})
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_expected_best_rises_from_the_mean_to_the_best(scores: list[float]) -> None:
    expected = expected_best(scores)
    assert expected[0] == pytest.approx(np.mean(scores))
    assert all(a <= b + 1e-9 for a, b in pairwise(expected))
    assert expected[-1] <= max(scores) + 1e-9


@given(
    st.integers(8, 40), st.integers(2, 4), st.integers(0, 2), st.sampled_from([*GROUPED, DATA.task])
)
def test_every_example_is_held_out_once_with_its_group(
    number: int, folds: int, seed: int, task: Task
) -> None:
    size = 2 if task in GROUPED else 1
    examples = [Example(str(n // size), str(n), label=1.0) for n in range(2 * number)]
    number = len(examples)
    assert not set.intersection(*({e.text for e in part} for part in hold_out(task, examples)))
    held_out_texts: list[str] = []
    for train, held_out in stratified_folds(task, examples, folds, seed):
        assert not {e.text for e in train} & {e.text for e in held_out}
        assert len(train) + len(held_out) == number
        held_out_texts += [e.text for e in held_out]
    assert sorted(held_out_texts) == sorted(e.text for e in examples)


def test_cross_validation_reports_an_interval(pretrained) -> None:
    def parted(**overrides: int) -> dict[str, Any]:
        settings = {**SETTINGS, "epochs": 1, **overrides}
        return cross_validate(pretrained(), WITHOUT_DEV, 3, settings=settings).as_dict()

    result, again = parted(seeds=2), parted(seed=1)
    assert len(result["scores"]) == 6
    assert result["scores"][3:] == again["scores"]
    low, high = result["interval"]
    assert low <= result["mean"] <= high
    with pytest.raises(UserError, match=r"--folds 99: choose from 2 to 16"):
        cross_validate(pretrained(), WITHOUT_DEV, 99)
    few = TaskData(WITHOUT_DEV.task, train=classes()[:3])
    with pytest.raises(UserError, match="3 examples cannot be split into folds"):
        cross_validate(pretrained(), few, 2)
    with pytest.raises(UserError, match="leave --dev out"):
        cross_validate(pretrained(), DATA, 3)


def test_the_folds_of_retrieval_are_ranked_apart(pretrained) -> None:
    # The TF-IDF vectors of folds have different words.
    examples = [Example(f"text {n}", f"words {n} about {n % 5}") for n in range(12)]
    data, settings = TaskData(find_task("retrieval"), train=examples), {**SETTINGS, "epochs": 1}
    result = cross_validate(pretrained(), data, 3, settings=settings).as_dict()
    low, high = result["intervals"]["ndcg@10"]
    assert low <= result["mean"] <= high  # folds of equal size
    assert all("ndcg@10" in line for line in result["baselines"])


def test_a_curve_has_both_encoders_at_every_size(pretrained, tmp_path: Path) -> None:
    settings = {**SETTINGS, "epochs": 1, "seeds": 2}
    curve = compute_learning_curve(pretrained(), DATA, [16, None], settings=settings)
    rows = curve.as_dict()["learning_curve"]
    assert [(r["encoder"], r["examples"]) for r in rows] == [
        ("pre-trained", 16),
        ("pre-trained", 32),
        ("untrained", 16),
        ("untrained", 32),
    ]
    assert all(len(r["scores"]) == 2 for r in rows)
    curve.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    with pytest.raises(UserError, match=r"--sizes 99: choose numbers from 2 to 32"):
        compute_learning_curve(pretrained(), DATA, [99])
    one = TaskData(table_task("task", Columns(), "number"), train=numbers()[:1], dev=numbers()[1:])
    with pytest.raises(UserError, match="needs two training examples or more"):
        compute_learning_curve(pretrained(), one, [None])
