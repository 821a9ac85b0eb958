"""The training loop."""

import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertwright.core.errors import TrainingInterrupted, UserError
from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import Progress, every_n_steps
from bertwright.training.loop import EvaluationResult, train
from toy_training import Toy, weights


class RecordingReporter(Callback):
    """Records all reports."""

    def __init__(self) -> None:
        self.steps: list[StepReport] = []
        self.metrics: list[tuple[int, Mapping[str, float]]] = []

    def report_step(self, report: StepReport) -> None:
        self.steps.append(report)

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        self.metrics.append((progress.step, metrics))


def trained(toy: Toy) -> torch.Tensor:
    train(toy.job())
    return weights(toy)


def test_training_lowers_the_loss() -> None:
    toy, reporter = Toy(steps=60, phase_fractions=(1.0,)), RecordingReporter()
    result = train(toy.job(callbacks=[reporter]))
    assert result.num_steps == 60
    assert result.num_tokens == 60 * 96
    assert reporter.steps[-1].losses["fit"] < 0.5 * reporter.steps[0].losses["fit"]


def test_the_total_is_the_weighted_sum_of_means() -> None:
    reporter = RecordingReporter()
    train(Toy(steps=1).job(callbacks=[reporter]))
    (report,) = reporter.steps
    assert report.loss == pytest.approx(report.losses["fit"] + 0.5 * report.losses["size"])


def test_micro_batches_change_nothing_but_rounding() -> None:
    whole, parts = trained(Toy()), trained(Toy(num_micro_batches=4))
    assert torch.allclose(whole, parts, rtol=1e-4, atol=1e-5)


def test_bf16_stays_near_float32() -> None:
    assert torch.allclose(trained(Toy()), trained(Toy(precision="bf16")), atol=0.1)


def test_bf16_micro_batches_are_summed_in_float32() -> None:
    toy = Toy(precision="bf16", num_micro_batches=4)
    job = toy.job()
    train(job)
    assert job.parameters.step_gradient().dtype == torch.float32


def test_two_equal_runs_are_identical() -> None:
    assert torch.equal(trained(Toy()), trained(Toy()))


def test_clipping_limits_the_gradient_norm() -> None:
    toy = Toy(max_grad_norm=1e-3)
    job = toy.job()
    norm, factor = job.gradient_clipping(torch.full((100,), 2.0))
    assert float(norm) == pytest.approx(20.0)
    assert float(norm * factor) == pytest.approx(1e-3, rel=1e-4)


def test_callbacks_are_called_before_and_after_every_step() -> None:
    calls: list[str] = []

    class Recorder(Callback):
        def before_step(self, progress: Progress) -> None:
            calls.append(f"before {progress.step}")

        def after_update(self, progress: Progress) -> None:
            calls.append(f"after {progress.step}")

    train(Toy(steps=2, num_micro_batches=2).job(callbacks=[Recorder()]))
    assert calls == ["before 0", "after 0", "before 1", "after 1"]


def test_evaluations_run_when_due() -> None:
    reporter = RecordingReporter()
    result = EvaluationResult(2.5, {"heldout_loss": 2.5})
    job = Toy(steps=10).job(
        callbacks=[reporter], evaluate=lambda progress: result, evaluation_trigger=every_n_steps(4)
    )
    assert train(job).score == 2.5
    assert [step for step, _ in reporter.metrics] == [4, 8]


def test_a_non_finite_loss_is_named_though_its_batch_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bertwright.training.step_monitor.save_nested_tensors", full)
    with pytest.raises(UserError, match="'fit' is not finite at step 7: "):
        train(Toy(tmp_path, poisoned_step=7).job())


def test_a_non_finite_loss_stops_and_saves_its_batch(tmp_path: Path) -> None:
    toy = Toy(tmp_path, poisoned_step=7)
    with pytest.raises(UserError, match=r"'fit' is not finite at step 7 .*start again in a new"):
        train(toy.job())
    (file,) = tmp_path.glob("not-finite-*")
    saved = load_file(file)
    assert math.isnan(saved["micro_batches.0.x"][0, 0])
    newest, _ = toy.job().checkpoints.load_newest()
    assert newest.step == 6
    assert all(t.isfinite().all() for t in newest.load_tensors("parameters").values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_step_and_writes_a_checkpoint(tmp_path: Path, number: int) -> None:
    class Stopping(Callback):
        def before_step(self, progress: Progress) -> None:
            if progress.step == 4:
                os.kill(os.getpid(), number)

    toy = Toy(tmp_path)
    with pytest.raises(
        TrainingInterrupted, match=r"after step 5; to continue from .* with --resume"
    ) as caught:
        train(toy.job(callbacks=[Stopping()]))
    assert caught.value.exit_code == 128 + number
    newest, _ = toy.job().checkpoints.load_newest()
    assert newest.step == 5
