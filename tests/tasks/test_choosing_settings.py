"""Searches, folds and learning curves: every trial is told, and nobody judges what it learned."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.errors import UserError
from bertwright.tasks import search as searching
from bertwright.tasks.catalogue import find_task, table_task
from bertwright.tasks.data import TaskData, held_out
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.folds import cross_validate
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.judging import EpochReport, figures_of
from bertwright.tasks.learning_curve import learning_curve
from bertwright.tasks.search import (
    Searched,
    Trial,
    _Pruning,
    expected_best,
    search_drawn,
    search_grid,
)
from bertwright.tasks.splitting import folds_of
from bertwright.tasks.task_training import unwatched
from bertwright.training.clock import Place
from small_tasks import classes

OWN = TaskData(table_task("own", Columns()), train=classes(), dev=classes())
JUDGED_BY_FOLDS = TaskData(OWN.task, train=classes())
RANK = find_task("rank")
SETTINGS = {"dropout": 0.0, "decay": 0.0, "compile": False}


def test_a_grid_is_tried_whole_and_told_whole(pretrained, monkeypatch) -> None:
    grid = {"batch": (8, 16), "rate": (1e-4, 1e-3), "epochs": (1,)}
    monkeypatch.setitem(searching.GRIDS, "bert", grid)
    found = search_grid(pretrained(), [OWN], "bert", unwatched, {**SETTINGS, "batch": 8})
    tried = [dict(trial.settings) for trial in found.trials]
    scale = 768 / 32
    assert [t["rate"] for t in tried] == pytest.approx([1e-4 * scale, 1e-3 * scale])
    assert all("batch" not in t for t in tried), "what is stated is not searched"
    said = found.as_dict()
    assert len(said["trials"]) == 2
    assert said["over_trials"]["best"] == max(t.score for t in found.trials)
    assert found.result.scores[0] == said["over_trials"]["best"]


@pytest.mark.parametrize(
    ("grid", "decay", "layer_decay"), [("bert", 0.01, 1), ("roberta", 0.1, 1), ("electra", 0, 0.8)]
)
def test_a_grid_decays_as_its_paper(
    pretrained, monkeypatch, grid: Any, decay: float, layer_decay: float
) -> None:
    tried: list[FineTuning] = []

    def untrained(model: Any, several: Any, *, watch: Any, **chosen: Any) -> Any:
        tried.append(FineTuning.of(chosen))
        return SimpleNamespace(scores=[0.0])

    monkeypatch.setattr(searching, "finetune_together", untrained)
    search_grid(pretrained(), [OWN], grid, unwatched, {})
    assert {each.decay for each in tried} == {decay}
    assert {each.adaptation.decay_by_level for each in tried} == {layer_decay}
    tried.clear()
    stated = {"decay": 0.3, "adaptation": "lora"}
    search_grid(pretrained(), [OWN], grid, unwatched, stated)
    assert {(each.decay, each.adaptation.own_kind()) for each in tried} == {(0.3, "lora")}


def test_what_has_one_level_has_no_decay_by_level(pretrained) -> None:
    axes = searching._scaled(
        searching.GRIDS["electra"], FineTuning(), pretrained("albert").model.recipe
    )
    assert "adaptation" not in axes
    assert "rate" in axes


@pytest.mark.parametrize("kind", ["lora", "frozen", "adapters", "full"])
@pytest.mark.parametrize("system", ["bert", "modern"])
def test_a_grid_goes_by_the_rate_that_is_usual(pretrained, kind: str, system: str) -> None:
    base, recipe = FineTuning.of({"adaptation": kind}), pretrained(system).model.recipe
    rates = searching._scaled({"rate": (5e-5, 2e-5)}, base, recipe)["rate"]
    usual = base.rate_for(recipe)
    assert list(rates) == pytest.approx([usual, 0.4 * usual])


def test_what_is_stated_of_the_schedule_is_not_searched(pretrained, monkeypatch) -> None:
    monkeypatch.setitem(searching.GRIDS, "bert", {"warmup": (0.06,), "epochs": (1,)})
    stated = {**SETTINGS, "schedule": {"kind": "constant"}}
    found = search_grid(pretrained(), [OWN], "bert", unwatched, stated)
    drawn = search_drawn(pretrained(), [OWN], 1, unwatched, {**stated, "epochs": 1})
    assert all("warmup" not in trial.settings for trial in [*found.trials, *drawn.trials])


def test_what_was_given_up_counts_with_what_it_had_reached() -> None:
    trials = [Trial({}, [0.9, 0.7]), Trial({}, None, 0.2), Trial({}, None, 0.4), Trial({}, [0.6])]
    told = Searched(trials).as_dict()
    over = told["over_trials"]
    assert (over["best"], over["given_up"]) == (pytest.approx(0.8), 2)
    assert (over["mean"], over["median"]) == (pytest.approx(0.5), pytest.approx(0.5))
    assert len(told["expected_best"]) == len(trials)
    assert told["expected_best"][0] == pytest.approx(over["mean"])
    assert told["trials"][1] == {"scores": None, "mean": None, "reached": 0.2}


def test_a_trial_is_given_up_by_what_chooses() -> None:
    class Asked:
        told: ClassVar[list[float]] = []

        def report(self, value: float, step: int) -> None:
            self.told.append(value)

        def should_prune(self) -> bool:
            return len(self.told) > 2

    pruning = _Pruning(Asked(), RuntimeError)
    epochs = [
        {"a": {"accuracy": 0.9, "f1": 0.0}, "glue.b": {"f1": 0.1, "accuracy": 0.0}},
        {"a": {"accuracy": 0.2, "f1": 1.0}, "glue.b": {"f1": 1.0, "accuracy": 0.0}},
        {"own": {"accuracy": 0.4, "f1": 1.0}},
    ]
    with pytest.raises(RuntimeError):
        for scores in epochs:
            pruning.evaluation(Place(0, 1), figures_of(scores))
    assert Asked.told == [EpochReport(0, 1, 0.0, scores).score for scores in epochs]
    assert Asked.told == pytest.approx([0.5, 0.6, 0.4])
    assert pruning.best == pytest.approx(0.6)


def test_a_drawn_search_is_the_same_twice(pretrained) -> None:
    first, again = (
        search_drawn(pretrained(), [OWN], 3, unwatched, {**SETTINGS, "epochs": 1}) for _ in range(2)
    )
    assert [t.as_dict() for t in first.trials] == [t.as_dict() for t in again.trials]
    assert len({t.settings["rate"] for t in first.trials}) == 3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_expected_best_rises_from_the_mean_to_the_best(scores: list[float]) -> None:
    expected = expected_best(scores)
    assert expected[0] == pytest.approx(np.mean(scores))
    assert all(a <= b + 1e-9 for a, b in pairwise(expected))
    assert expected[-1] <= max(scores) + 1e-9


@given(st.integers(8, 40), st.integers(2, 4), st.integers(0, 2), st.booleans())
def test_every_example_judges_once_and_none_of_its_group_is_learned(
    number: int, folds: int, seed: int, ranked: bool
) -> None:
    task = RANK if ranked else OWN.task
    examples = [Example(str(n // 2 if ranked else n), str(n), label=1.0) for n in range(2 * number)]
    number = len(examples)
    assert not set.intersection(*({e.first for e in part} for part in held_out(task, examples)))
    judged: list[str] = []
    for learned, judging in folds_of(task, examples, folds, seed):
        assert not {e.first for e in learned} & {e.first for e in judging}
        assert len(learned) + len(judging) == number
        judged += [e.first for e in judging]
    assert sorted(judged) == sorted(e.first for e in examples)


def test_folds_are_told_with_their_interval(pretrained) -> None:
    def parted(**more: int) -> dict[str, Any]:
        settings = {**SETTINGS, "epochs": 1, **more}
        return cross_validate(pretrained(), JUDGED_BY_FOLDS, 3, settings=settings).as_dict()

    found, again = parted(seeds=2), parted(seed=1)
    assert len(found["scores"]) == 6
    assert found["scores"][3:] == again["scores"]
    low, high = found["interval"]
    assert low <= found["mean"] <= high
    with pytest.raises(UserError, match=r"--folds 99: choose from 2 to 16"):
        cross_validate(pretrained(), JUDGED_BY_FOLDS, 99)
    with pytest.raises(UserError, match="leave --dev out"):
        cross_validate(pretrained(), OWN, 3)


def test_a_curve_has_both_encoders_at_every_size(pretrained, tmp_path: Path) -> None:
    settings = {**SETTINGS, "epochs": 1, "seeds": 2}
    curve = learning_curve(pretrained(), OWN, [16, None], settings=settings)
    rows = curve.as_dict()["sizes"]
    assert [(r["encoder"], r["examples"]) for r in rows] == [
        ("pre-trained", 16),
        ("pre-trained", 32),
        ("untrained", 16),
        ("untrained", 32),
    ]
    assert all(len(r["scores"]) == 2 for r in rows)
    curve.draw(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    with pytest.raises(UserError, match=r"--sizes 99: there are 32 training examples"):
        learning_curve(pretrained(), OWN, [99])
