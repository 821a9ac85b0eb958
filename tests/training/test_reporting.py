"""What a run tells about itself."""

import builtins
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from small_recipe import small
from toy import Toy

from bertwright.errors import MissingExtra
from bertwright.text.shards import Data
from bertwright.training.charts import draw_losses
from bertwright.training.clock import BudgetClock, Clock, Place, every
from bertwright.training.few_steps import FewSteps
from bertwright.training.loop import Evaluation, train
from bertwright.training.metrics_file import MetricsFile, read_metrics
from bertwright.training.pretraining import pretrain
from bertwright.training.progress import ProgressLine, duration
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.reporting import Reporters, Speed, StepReport
from bertwright.training.tensorboard import TensorBoard
from recipes_at_toy_size import toy


def report(step: int, loss: float = 2.0, phase: int = 0) -> StepReport:
    return StepReport(
        Place(step, step / 100, phase), loss, {"fit": loss}, {"fit": 0.5}, 0.1, 1.0, 96 * (step + 1)
    )


class Ticks:
    """A clock that goes on by a tenth of a second each time it is read."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 0.1
        return self.time


@pytest.mark.parametrize(("seconds_per_step", "said"), [(0.1, []), (3.0, ["5"])])
def test_a_budget_with_time_for_few_steps_is_said_once(
    seconds_per_step: float, said: list[str]
) -> None:
    ticks, warned = Ticks(), list[str]()
    clock = BudgetClock(14.0, now=lambda: ticks.time)
    few = FewSteps(clock, warned.append)
    clock.observe(0)
    for step in range(4):
        ticks.time += seconds_per_step
        clock.observe(step + 1)
        few.step(report(step))
    assert [warning.split()[5] for warning in warned] == said


def test_speed_is_tokens_over_time() -> None:
    speed = Speed([1e6, 2e6], 1e10, Ticks())
    assert speed.tokens_per_second() is None
    for step in range(5):
        speed.step(report(step))
    assert speed.tokens_per_second() == pytest.approx(960)
    assert speed.steps_per_second() == pytest.approx(10)
    assert speed.peak_share() == pytest.approx(0.096)


def test_speed_does_not_count_evaluations_nor_the_first_step_of_a_phase() -> None:
    ticks = Ticks()
    speed = Speed([1e6, 2e6], 1e10, ticks)
    speed.step(report(0))
    ticks.time += 100
    speed.evaluation(Place(1, 0.1), {})
    for step in (1, 2):
        speed.step(report(step))
    assert speed.tokens_per_second() == pytest.approx(960)
    ticks.time += 100
    for step in (3, 4):
        speed.step(report(step, phase=1))
    assert speed.peak_share() == pytest.approx(0.192)


def test_an_evaluation_of_many_figures_is_one_short_line() -> None:
    written = io.StringIO()
    line = ProgressLine(Clock(100), Speed(), Console(file=written))
    line.evaluation(Place(1, 0.01), {f"figure_{number}": 0.5 for number in range(10)})
    assert written.getvalue().startswith("step 1: figure 0 0.5, figure 1 0.5, ")
    assert written.getvalue().endswith("figure 7 0.5 and 2 more in metrics.jsonl\n")


def test_metrics_are_means_of_ten_steps(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", Clock(100), Speed())
    for step in range(12):
        metrics.step(report(step, loss=float(step)))
    metrics.close()
    first, last = read_metrics(tmp_path / "metrics.jsonl")
    assert (first["step"], first["loss"], first["fit_loss"]) == (10, 4.5, 4.5)
    assert (last["step"], last["loss"], last["tokens"]) == (12, 10.5, 12 * 96)


def test_metrics_say_how_much_was_hidden(data: Data, tmp_path: Path) -> None:
    changes = ("steps=20", "encoder.positions.size=64", "phases=[{}]")
    rate = "objectives.masked.selection.rate={kind: linear, from: 0.4, to: 0.1}"
    recipe = small("structbert", *changes, rate)
    pretrain(recipe, data, tmp_path / "out")
    batches, clock = RecipeBatches(recipe, data), Clock(20)
    shares: list[tuple[float, float]] = []
    for step in range(20):
        (batch,) = batches(clock.place(step, 8 * step)).micro_batches
        shares.append((np.divide(*batch.hidden("masked")), np.divide(*batch.hidden("word-order"))))
    lines = [x for x in read_metrics(tmp_path / "out" / "metrics.jsonl") if "loss" in x]
    for number, line in enumerate(lines):
        of_line = np.mean(shares[10 * number : 10 * number + 10], axis=0)
        assert line["masked_hidden"] == pytest.approx(of_line[0])
        assert line["word_order_hidden"] == pytest.approx(of_line[1])
        asked = recipe.objectives["masked"].selection.rate.at((number + 0.5) / 2)
        assert line["masked_hidden"] == pytest.approx(asked, abs=0.03)
    assert len(lines) == 2
    assert not any("sentence_relation_hidden" in line for line in lines)


@pytest.mark.parametrize(
    ("system", "hiding"),
    [
        ("electra", ["generated"]),
        ("xlnet", ["permutation"]),
        ("spanbert", ["masked"]),
        ("t5", ["denoising"]),
        ("gpt", []),
    ],
)
def test_what_hides_is_known(system: str, hiding: list[str]) -> None:
    assert [name for name, o in toy(system).objectives.items() if o.hides] == hiding


def test_metrics_after_the_checkpoint_are_written_again(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step}) for step in (10, 20, 30)]
    file.write_text("\n".join(lines) + '\n{"step": 4')
    MetricsFile(file, Clock(100), Speed(), first_step=20)
    assert [line["step"] for line in read_metrics(file)] == [10, 20]


def test_a_run_writes_metrics_a_curve_and_tensorboard(tmp_path: Path) -> None:
    speed, toy = Speed(), Toy(steps=30)
    clock = Clock(30)
    reporters = Reporters(
        speed, MetricsFile(tmp_path / "metrics.jsonl", clock, speed), TensorBoard(tmp_path / "tb")
    )
    found = Evaluation(1.0, {"heldout_fit_loss": 1.0})
    train(
        toy.job(clock=clock, reporter=reporters, evaluate=lambda _: found, evaluate_when=every(15))
    )
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [10, 15, 20, 30, 30]
    assert list((tmp_path / "tb").iterdir())
    draw_losses(tmp_path / "metrics.jsonl", tmp_path / "loss.png", unigram_entropy=1.5)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_of_nothing_is_still_a_picture(tmp_path: Path) -> None:
    draw_losses(tmp_path / "none.jsonl", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_line_says_how_far_how_good_how_fast(terminal: bool) -> None:
    said = io.StringIO()
    console = Console(file=said, force_terminal=terminal, width=120, highlight=False)
    speed = Speed([1e6], 1e10, Ticks())
    line = ProgressLine(Clock(100), speed, console, seconds_per_line=0.3, now=Ticks())
    for step in range(9):
        speed.step(report(step))
        line.step(replace(report(step), hidden={"masked": 0.1504}))
    line.evaluation(Place(9, 0.09), {"heldout_loss": 1.25})
    line.close()
    assert "step 9 of 100  loss 2.000  15.0% masked  960 tokens/s  10% of peak" in said.getvalue()
    assert "0:09 left" in said.getvalue()
    assert "step 9: heldout loss 1.25" in said.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (65.4, "1:05"), (3723, "1:02:03")])
def test_durations_are_read_easily(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_without_tensorboard_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest):
        if "tensorboard" in name:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"bertwright\[tensorboard\]"):
        TensorBoard(tmp_path)


def test_the_time_left_is_that_of_the_budget() -> None:
    ticks, written = Ticks(), io.StringIO()
    clock = BudgetClock(300.0, started=0.0, now=lambda: ticks.time)
    line = ProgressLine(clock, Speed(), Console(file=written), seconds_per_line=0.0)
    line.begin("training modern-tiny in bf16")
    assert written.getvalue() == "training modern-tiny in bf16  5:00 left\n"
    ticks.time = 100.0
    line.step(report(0))
    assert written.getvalue().splitlines()[-1].endswith("3:20 left")
    assert "of 1,000,000" not in written.getvalue()


def test_the_time_left_of_so_many_steps_is_known_with_the_speed() -> None:
    ticks, written = Ticks(), io.StringIO()
    speed = Speed(now=lambda: ticks.time)
    line = ProgressLine(Clock(100), speed, Console(file=written), seconds_per_line=0.0)
    line.begin("training")
    for step in range(2):
        ticks.time += 10.0
        speed.step(report(step))
        line.step(report(step))
    first, second, third = written.getvalue().splitlines()
    assert first == "training"
    assert "left" not in second
    assert third.endswith("16:20 left")
