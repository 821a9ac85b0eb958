"""Laws of the loop."""

import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toy import Part, Toy, weights

from bertwright.errors import Interrupted, UserError
from bertwright.training.clock import Place, every
from bertwright.training.loop import Evaluation, train
from bertwright.training.procedure import Procedure
from bertwright.training.reporting import Reporter, StepReport


class Kept(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[StepReport] = []
        self.figures: list[tuple[int, Mapping[str, float]]] = []

    def step(self, report: StepReport) -> None:
        self.steps.append(report)

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        self.figures.append((place.step, figures))


def trained(toy: Toy) -> torch.Tensor:
    train(toy.job())
    return weights(toy)


def test_training_lowers_the_loss() -> None:
    toy, kept = Toy(steps=60, shares=(1.0,)), Kept()
    outcome = train(toy.job(reporter=kept))
    assert outcome.steps == 60
    assert outcome.tokens == 60 * 96
    assert kept.steps[-1].losses["fit"] < 0.5 * kept.steps[0].losses["fit"]


def test_the_total_is_the_weighted_sum_of_means() -> None:
    kept = Kept()
    train(Toy(steps=1).job(reporter=kept))
    (report,) = kept.steps
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


def test_the_same_run_twice_is_the_same_bit_for_bit() -> None:
    assert torch.equal(trained(Toy()), trained(Toy()))


def test_clipping_bounds_what_the_optimiser_sees() -> None:
    toy = Toy(clip=1e-3)
    job = toy.job()
    norm, factor = job.clip(torch.full((100,), 2.0))
    assert float(norm) == pytest.approx(20.0)
    assert float(norm * factor) == pytest.approx(1e-3, rel=1e-4)


def test_moments_come_in_one_order() -> None:
    seen: list[str] = []

    class Noted(Procedure):
        def before_step(self, place: Place) -> None:
            seen.append("before")

        def after_losses(self, place: Place, losses):
            seen.append("losses")
            return losses

        def after_backward(self, place: Place) -> None:
            seen.append("backward")

        def after_update(self, place: Place) -> None:
            seen.append("update")

        def at_evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
            seen.append("evaluation")

    toy = Toy(steps=1, num_micro_batches=2)
    train(
        toy.job(
            procedures=[Noted()],
            evaluate=lambda place: Evaluation(1.0, {"loss": 1.0}),
            evaluate_when=every(1),
        )
    )
    assert seen == ["before", "losses", "losses", "backward", "update", "evaluation"]


def test_evaluations_are_made_when_due() -> None:
    kept = Kept()
    found = Evaluation(2.5, {"heldout_loss": 2.5})
    job = Toy(steps=10).job(reporter=kept, evaluate=lambda place: found, evaluate_when=every(4))
    assert train(job).score == 2.5
    assert [step for step, _ in kept.figures] == [4, 8]


def test_a_loss_that_is_not_finite_stops_and_saves_its_batch(tmp_path: Path) -> None:
    toy = Toy(tmp_path, poisoned_step=7)
    with pytest.raises(UserError, match=r"'fit' is not finite at step 7 .*begin anew in another"):
        train(toy.job())
    (file,) = tmp_path.glob("not-finite-*")
    saved = load_file(file)
    assert math.isnan(saved["micro_batches.0.x"][0, 0])
    newest, _ = toy.job().checkpoints.newest()
    assert newest.step == 6
    assert all(t.isfinite().all() for t in newest.tensors("parameters").values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_step_and_writes_a_checkpoint(tmp_path: Path, number: int) -> None:
    class Stopping(Procedure):
        def before_step(self, place: Place) -> None:
            if place.step == 4:
                os.kill(os.getpid(), number)

    toy = Toy(tmp_path)
    with pytest.raises(Interrupted, match=r"after step 5; go on from .* with --resume") as caught:
        train(toy.job(procedures=[Stopping()]))
    assert caught.value.exit_code == 128 + number
    newest, _ = toy.job().checkpoints.newest()
    assert newest.step == 5


def test_a_part_of_the_toy_is_what_the_loop_saves() -> None:
    assert {"x", "y", "first_row"} == set(Part.__dataclass_fields__)
