"""Reporters: metrics, progress line and TensorBoard."""

import builtins
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bertwright.core.errors import MissingExtra
from bertwright.data.shards.dataset import Dataset
from bertwright.training.callbacks.callback import StepReport
from bertwright.training.clock import (
    BudgetClock,
    DecisionLog,
    Progress,
    TrainingClock,
    every_n_steps,
)
from bertwright.training.loop import EvaluationResult, train
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.reporters.few_steps import FewStepsWarning
from bertwright.training.reporters.loss_plot import save_loss_plot
from bertwright.training.reporters.metrics_file import MetricsFile, read_metrics
from bertwright.training.reporters.progress_line import ProgressLine, format_duration
from bertwright.training.reporters.tensorboard import TensorBoard
from bertwright.training.reporters.throughput import ThroughputMeter
from bertwright.training.run_warnings import RunWarnings
from small_recipe import small
from toy_recipes import toy
from toy_training import Toy


def report(step: int, loss: float = 2.0, phase: int = 0) -> StepReport:
    return StepReport(
        Progress(step, step / 100, phase),
        loss,
        {"fit": loss},
        {"fit": 0.5},
        0.1,
        1.0,
        96 * (step + 1),
    )


class Ticks:
    """A clock that advances by a tenth of a second on every read."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 0.1
        return self.time


@pytest.mark.parametrize(("seconds_per_step", "num_steps"), [(0.1, []), (3.0, ["5"])])
def test_a_budget_for_few_steps_causes_one_warning(
    seconds_per_step: float, num_steps: list[str]
) -> None:
    ticks, warnings = Ticks(), RunWarnings(DecisionLog(), lambda line: None)
    clock = BudgetClock(14.0, now=lambda: ticks.time)
    reporter = FewStepsWarning(clock, warnings)
    clock.observe(0)
    for step in range(4):
        ticks.time += seconds_per_step
        clock.observe(step + 1)
        reporter.report_step(report(step))
    assert [warning.split()[4] for warning in warnings.messages] == num_steps


def test_throughput_is_tokens_over_time() -> None:
    throughput = ThroughputMeter([1e6, 2e6], 1e10, Ticks())
    assert throughput.tokens_per_second() is None
    for step in range(5):
        throughput.report_step(report(step))
    assert throughput.tokens_per_second() == pytest.approx(960)
    assert throughput.steps_per_second() == pytest.approx(10)
    assert throughput.flops_utilisation() == pytest.approx(0.096)


def test_throughput_excludes_evaluations_and_the_first_step_of_a_phase() -> None:
    ticks = Ticks()
    throughput = ThroughputMeter([1e6, 2e6], 1e10, ticks)
    throughput.report_step(report(0))
    ticks.time += 100
    throughput.report_evaluation(Progress(1, 0.1), {})
    for step in (1, 2):
        throughput.report_step(report(step))
    assert throughput.tokens_per_second() == pytest.approx(960)
    ticks.time += 100
    for step in (3, 4):
        throughput.report_step(report(step, phase=1))
    assert throughput.flops_utilisation() == pytest.approx(0.192)


def test_an_evaluation_of_many_metrics_is_one_short_line() -> None:
    output = io.StringIO()
    line = ProgressLine(TrainingClock(100), ThroughputMeter(), Console(file=output))
    line.report_evaluation(Progress(1, 0.01), {f"metric_{number}": 0.5 for number in range(10)})
    assert output.getvalue().startswith("step 1: metric 0 0.5, metric 1 0.5, ")
    assert output.getvalue().endswith("metric 7 0.5 and 2 more in metrics.jsonl\n")


def test_metrics_are_means_of_ten_steps(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", TrainingClock(100), ThroughputMeter())
    for step in range(12):
        metrics.report_step(report(step, loss=float(step)))
    metrics.close()
    first, last = read_metrics(tmp_path / "metrics.jsonl")
    assert (first["step"], first["loss"], first["fit_loss"]) == (10, 4.5, 4.5)
    assert (last["step"], last["loss"], last["tokens"]) == (12, 10.5, 12 * 96)


def test_metrics_include_masking_rates(data: Dataset, tmp_path: Path) -> None:
    changes = ("steps=20", "encoder.positions.size=64", "phases=[{}]")
    rate = "objectives.masked.selection.masking_rate={kind: linear, from: 0.4, to: 0.1}"
    recipe = small("structbert", *changes, rate)
    pretrain(recipe, data, tmp_path / "out")
    batches, clock = PretrainingBatches(recipe, data), TrainingClock(20)
    rates: list[list[float]] = []
    for step in range(20):
        (batch,) = batches(clock.progress(step, 8 * step)).micro_batches
        rates.append([np.divide(*batch.masked_counts(name)) for name in ("masked", "word-order")])
    lines = [x for x in read_metrics(tmp_path / "out" / "metrics.jsonl") if "loss" in x]
    for number, line in enumerate(lines):
        masked, shuffled = np.mean(rates[10 * number : 10 * number + 10], axis=0)
        assert line["masked_masking_rate"] == pytest.approx(masked)
        assert line["word_order_masking_rate"] == pytest.approx(shuffled)
        expected = recipe.objectives["masked"].selection.masking_rate.at((number + 0.5) / 2)
        assert line["masked_masking_rate"] == pytest.approx(expected, abs=0.03)
    assert len(lines) == 2
    assert not any("sentence_relation_masking_rate" in line for line in lines)


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("electra", ["generated"]),
        ("xlnet", ["permutation"]),
        ("spanbert", ["masked"]),
        ("t5", ["denoising"]),
        ("gpt", []),
    ],
)
def test_masking_objectives_are_declared(system: str, names: list[str]) -> None:
    assert [
        name for name, o in toy(system).objectives.items() if o.capabilities.masks_input
    ] == names


def test_metrics_after_the_checkpoint_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step}) for step in (10, 20, 30)]
    file.write_text("\n".join(lines) + '\n{"step": 4')
    MetricsFile(file, TrainingClock(100), ThroughputMeter(), first_step=20)
    assert [line["step"] for line in read_metrics(file)] == [10, 20]


def test_a_run_writes_metrics_a_curve_and_tensorboard(tmp_path: Path) -> None:
    throughput, toy = ThroughputMeter(), Toy(steps=30)
    clock = TrainingClock(30)
    reporters = [
        throughput,
        MetricsFile(tmp_path / "metrics.jsonl", clock, throughput),
        TensorBoard(tmp_path / "tb"),
    ]
    result = EvaluationResult(1.0, {"heldout_fit_loss": 1.0})
    train(
        toy.job(
            clock=clock,
            callbacks=reporters,
            evaluate=lambda _: result,
            evaluation_trigger=every_n_steps(15),
        )
    )
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [10, 15, 20, 30, 30]
    assert list((tmp_path / "tb").iterdir())
    save_loss_plot(tmp_path / "metrics.jsonl", tmp_path / "loss.png", unigram_entropy=1.5)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_metrics_is_written(tmp_path: Path) -> None:
    save_loss_plot(tmp_path / "none.jsonl", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_line_shows_step_loss_and_throughput(terminal: bool) -> None:
    terminal_output = io.StringIO()
    console = Console(file=terminal_output, force_terminal=terminal, width=120, highlight=False)
    throughput = ThroughputMeter([1e6], 1e10, Ticks())
    line = ProgressLine(TrainingClock(100), throughput, console, seconds_per_line=0.3, now=Ticks())
    for step in range(9):
        throughput.report_step(report(step))
        line.report_step(replace(report(step), masking_rates={"masked": 0.1504}))
    line.report_evaluation(Progress(9, 0.09), {"heldout_loss": 1.25})
    line.close()
    assert (
        "step 9 of 100  loss 2.000  15.0% masked  960 tokens/s  10% of peak"
        in terminal_output.getvalue()
    )
    assert "0:09 left" in terminal_output.getvalue()
    assert "step 9: heldout loss 1.25" in terminal_output.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (65.4, "1:05"), (3723, "1:02:03")])
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_missing_tensorboard_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module = builtins.__import__

    def import_without_tensorboard(name: str, *rest):
        if "tensorboard" in name:
            raise ImportError(name)
        return import_module(name, *rest)

    monkeypatch.setattr(builtins, "__import__", import_without_tensorboard)
    with pytest.raises(MissingExtra, match=r"bertwright\[tensorboard\]"):
        TensorBoard(tmp_path)


def test_the_remaining_time_of_a_budget() -> None:
    ticks, output = Ticks(), io.StringIO()
    clock = BudgetClock(300.0, start_time=0.0, now=lambda: ticks.time)
    line = ProgressLine(clock, ThroughputMeter(), Console(file=output), seconds_per_line=0.0)
    line.start("training modern-tiny in bf16")
    assert output.getvalue() == "training modern-tiny in bf16  5:00 left\n"
    ticks.time = 100.0
    line.report_step(report(0))
    assert output.getvalue().splitlines()[-1].endswith("3:20 left")
    assert "of 1,000,000" not in output.getvalue()


def test_the_remaining_time_of_steps_follows_from_the_throughput() -> None:
    ticks, output = Ticks(), io.StringIO()
    throughput = ThroughputMeter(now=lambda: ticks.time)
    line = ProgressLine(TrainingClock(100), throughput, Console(file=output), seconds_per_line=0.0)
    line.start("training")
    for step in range(2):
        ticks.time += 10.0
        throughput.report_step(report(step))
        line.report_step(report(step))
    first, second, third = output.getvalue().splitlines()
    assert first == "training"
    assert "left" not in second
    assert third.endswith("16:20 left")
