"""Arms are trained once, evaluated on the same targets, and compared in pairs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.learning import compare as learning
from benchmarks.learning import report
from benchmarks.learning.arms import BertSetting, LearningPlan, ModernBertSetting, TrainerArm
from benchmarks.learning.compare import LearningResults, run_groups, run_module
from benchmarks.learning.evaluation import evaluate_arm
from benchmarks.learning.stock import build_optimiser, build_stock_model
from benchmarks.learning.trainer import BudgetTimer, TrainingSequences
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.costs import num_parameters_by_part
from bertwright.recipes import Recipe

PLAN = LearningPlan("tiny", "modern-tiny", 10, 2, 3, (5e-4, 1e-3, 2e-3))


def no_log(_: str) -> None:
    """Log nothing."""


@pytest.fixture
def results(tmp_path: Path, data_folder: Path) -> LearningResults:
    return LearningResults(tmp_path, Dataset.open(data_folder), PLAN)


def figures(loss: float) -> dict[str, object]:
    return {"masked_loss": loss, "unigram_entropy": 7.0, "training": {"steps": 10}}


def fill(results: LearningResults) -> None:
    for number, arm in enumerate(PLAN.grid):
        results.add(arm, figures(6.5 + 0.01 * abs(number - 4)))
    for arm in PLAN.trainer_arms(PLAN.grid[4].setting):
        results.add(arm, figures(6.4 + 0.01 * arm.seed))
    for arm in PLAN.bertwright_arms:
        results.add(arm, figures(5.2 - 0.01 * arm.seed))


def test_the_grid_is_every_setting_once() -> None:
    assert len({arm.name for arm in PLAN.grid}) == 12
    assert {arm.minutes for arm in PLAN.grid} == {2}


def test_the_best_of_a_full_length_grid_is_its_first_seed() -> None:
    plan = replace(PLAN, grid_minutes=PLAN.minutes)
    assert plan.trainer_arms(plan.grid[3].setting)[0] == plan.grid[3]


def test_the_difference_is_paired_by_seed(results: LearningResults) -> None:
    fill(results)
    comparison = report.make_report(PLAN, results)["results"][0]
    assert comparison["setting"] == str(PLAN.grid[4].setting)
    assert comparison["difference"] == pytest.approx(1.22)
    low, high = comparison["interval"]
    assert low < 1.22 < high
    assert any("1.22" in line for line in report.report_lines(PLAN, results))


def test_finished_arms_are_not_repeated(
    results: LearningResults, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(results)
    monkeypatch.setattr(learning, "run_module", lambda *_: pytest.fail("an arm was repeated"))
    reopened = LearningResults(results.folder, Dataset.open(data_folder), PLAN)
    run_groups(PLAN, ["hf-grid", "hf-best", "ours"], reopened, no_log)
    assert report.make_report(PLAN, reopened) == report.make_report(PLAN, results)


def test_results_of_another_size_are_refused(results: LearningResults, data_folder: Path) -> None:
    fill(results)
    with pytest.raises(UserError, match="choose another folder"):
        LearningResults(results.folder, Dataset.open(data_folder), replace(PLAN, size="mini"))


def test_the_best_of_an_unfinished_grid_is_refused(results: LearningResults) -> None:
    with pytest.raises(UserError, match="hf-grid"):
        run_groups(PLAN, ["hf-best"], results, no_log)


def test_an_unknown_group_is_named(results: LearningResults) -> None:
    with pytest.raises(UserError, match="did you mean 'hf-grid'"):
        run_groups(PLAN, ["hf-gird"], results, no_log)


def test_the_schedule_begins_after_the_first_step() -> None:
    timer = BudgetTimer(1000.0)
    timer.start()
    assert timer.progress == 0.0
    timer.after_step()
    assert 0.0 < timer.progress < 0.5


def test_the_time_ends_even_within_the_first_step() -> None:
    timer = BudgetTimer(0.0)
    timer.start()
    assert timer.progress == 1.0


def test_the_trainer_gets_every_sequence(data_folder: Path) -> None:
    sequences = TrainingSequences(Dataset.open(data_folder))
    first, last = sequences.__getitems__([0, len(sequences) - 1])
    assert len(first["input_ids"]) == len(last["special_tokens_mask"]) == 128
    assert first["special_tokens_mask"][0] == 1


def test_modernbert_has_the_body_and_the_optimiser_of_modern(data_folder: Path) -> None:
    tokenizer = Dataset.open(data_folder).tokenizer
    setting = ModernBertSetting(0.3, 0.02, 5e-3)
    stock = build_stock_model(setting, "tiny", tokenizer.vocab_size, tokenizer.special_tokens)
    recipe = Recipe.load("modern-tiny")
    assert num_parameters_by_part(recipe, tokenizer.vocab_size)["blocks"] == sum(
        p.numel() for name, p in stock.named_parameters() if ".layers." in name
    )
    optimiser = build_optimiser(setting, stock)
    assert optimiser is not None
    schedule = LambdaLR(optimiser, lambda step: 0.5)
    before = {name: p.detach().clone() for name, p in stock.named_parameters()}
    stock(input_ids=torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
    optimiser.step()
    schedule.step()
    assert all((p != before[name]).any() for name, p in stock.named_parameters())
    assert {group["lr"] for group in optimiser.param_groups} == {0.01, 2.5e-3}
    assert len(replace(PLAN, peer="modernbert").grid) == 12
    assert build_optimiser(BertSetting(0.06, 0.98, 1e-3), stock) is None, "the Trainer's own"


@pytest.mark.full
def test_the_trainer_stops_and_is_evaluated(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    arm = TrainerArm(ModernBertSetting(0.3, 0.02, 5e-3), minutes=0.003, seed=1)
    results = LearningResults(tmp_path, Dataset.open(data_folder), PLAN)
    run_module(*learning.training_command(arm, "tiny", data_folder, tmp_path / "model"))
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["steps"] >= 1
    metrics = evaluate_arm(arm, tmp_path / "model", Recipe.load(PLAN.recipe), results.data)
    assert 0 < metrics["masked_loss"] < 7
    assert metrics["unigram_entropy"] > 0
