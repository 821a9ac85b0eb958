"""Arms are trained once, asked the same questions, and compared in pairs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertwright.bench.learning import report, running
from bertwright.bench.learning.arms import PeerArm, Plan, Setting
from bertwright.bench.learning.evaluation import figures
from bertwright.bench.learning.running import Results, run_module, run_parts
from bertwright.bench.learning.trainer import Timer, TrainingRows
from bertwright.errors import UserError
from bertwright.recipes import Recipe
from bertwright.text.shards import Data

PLAN = Plan("tiny", "modern-tiny", 10, 2, 3, (5e-4, 1e-3, 2e-3))


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def results(tmp_path: Path, data_folder: Path) -> Results:
    return Results(tmp_path, Data.open(data_folder), PLAN)


def found(loss: float) -> dict[str, object]:
    return {"masked_loss": loss, "unigram_entropy": 7.0, "training": {"steps": 10}}


def fill(results: Results) -> None:
    for number, arm in enumerate(PLAN.grid):
        results.add(arm, found(6.5 + 0.01 * abs(number - 4)))
    for arm in PLAN.theirs(PLAN.grid[4].setting):
        results.add(arm, found(6.4 + 0.01 * arm.seed))
    for arm in PLAN.ours:
        results.add(arm, found(5.2 - 0.01 * arm.seed))


def test_the_grid_is_every_setting_once() -> None:
    assert len({arm.name for arm in PLAN.grid}) == 12
    assert {arm.minutes for arm in PLAN.grid} == {2}


def test_a_grid_of_full_length_is_the_first_seed_of_its_best() -> None:
    plan = replace(PLAN, grid_minutes=PLAN.minutes)
    assert plan.theirs(plan.grid[3].setting)[0] == plan.grid[3]


def test_the_difference_is_paired_by_seed(results: Results) -> None:
    fill(results)
    comparison = report.report(PLAN, results)["results"][0]
    assert comparison["setting"] == str(PLAN.grid[4].setting)
    assert comparison["difference"] == pytest.approx(1.22)
    low, high = comparison["interval"]
    assert low < 1.22 < high
    assert any("1.22" in line for line in report.lines(PLAN, results))


def test_finished_arms_are_kept_and_not_run_again(
    results: Results, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(results)
    monkeypatch.setattr(running, "run_module", lambda *_: pytest.fail("an arm was run again"))
    again = Results(results.folder, Data.open(data_folder), PLAN)
    run_parts(PLAN, ["hf-grid", "hf-best", "ours"], again, quiet)
    assert report.report(PLAN, again) == report.report(PLAN, results)


def test_results_of_another_size_are_refused(results: Results, data_folder: Path) -> None:
    fill(results)
    with pytest.raises(UserError, match="choose another folder"):
        Results(results.folder, Data.open(data_folder), replace(PLAN, size="mini"))


def test_the_best_of_an_unfinished_grid_is_refused(results: Results) -> None:
    with pytest.raises(UserError, match="hf-grid"):
        run_parts(PLAN, ["hf-best"], results, quiet)


def test_an_unknown_part_is_named(results: Results) -> None:
    with pytest.raises(UserError, match="did you mean 'hf-grid'"):
        run_parts(PLAN, ["hf-gird"], results, quiet)


def test_the_schedule_begins_after_the_first_step() -> None:
    timer = Timer(1000.0)
    timer.start()
    assert timer.progress == 0.0
    timer.after_step()
    assert 0.0 < timer.progress < 0.5


def test_the_time_ends_even_within_the_first_step() -> None:
    timer = Timer(0.0)
    timer.start()
    assert timer.progress == 1.0


def test_the_trainer_sees_every_row(data_folder: Path) -> None:
    rows = TrainingRows(Data.open(data_folder))
    first, last = rows.__getitems__([0, len(rows) - 1])
    assert len(first["input_ids"]) == len(last["special_tokens_mask"]) == 128
    assert first["special_tokens_mask"][0] == 1


def test_the_trainer_stops_and_is_asked_our_questions(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    arm = PeerArm(Setting(0.06, 0.98, 1e-3), minutes=0.03, seed=1)
    results = Results(tmp_path, Data.open(data_folder), PLAN)
    run_module(*running.training_command(arm, "tiny", data_folder, tmp_path / "model"))
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["steps"] >= 1
    known = figures(arm, tmp_path / "model", Recipe.load(PLAN.recipe), results.data)
    assert 0 < known["masked_loss"] < 7
    assert known["unigram_entropy"] > 0
