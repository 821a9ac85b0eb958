"""Miscompiled steps are detected, and rounding differences accepted."""

from collections.abc import Callable

import pytest
import torch

from bertwright.data.shards.dataset import Dataset
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.compilation import agreement as agreement_module
from bertwright.training.compilation.agreement import compare_compiled_step
from bertwright.training.loop import TrainingJob
from bertwright.training.pretraining.job import untrained_job
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from small_recipe import small
from wrong_code import compile_with

START = Progress(0, 0.0)
ONE_BLOCK = "encoder.depth.layers=1"
ONE_PHASE = "phases=[{objectives: {masked: {}}}]"
RECIPES = {
    "learned positions": ("bert", "objectives.next-sentence=null", "phases=[{}]"),
    "rotary positions": ("modern", ONE_PHASE),
}


def job(data: Dataset, precision: str, recipe: str = "rotary positions") -> TrainingJob:
    fits = fit_recipe_to_data(small(*RECIPES[recipe], ONE_BLOCK), data)
    compiled = untrained_job(fits, data, precision, TrainingClock(1))
    compiled.compile()
    return compiled


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_correct_code_agrees(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, precision: str, recipe: str
) -> None:
    compile_with(monkeypatch)
    agreement = compare_compiled_step(job(data, precision, recipe), START)
    assert agreement.agrees, agreement.difference


def negate_one_row(x: torch.Tensor) -> torch.Tensor:
    changed = x.clone()
    if changed.ndim == 2:
        changed[0] *= -1
    return changed


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.full), "bf16"])
@pytest.mark.parametrize(
    "change", [lambda x: x * 1.2, torch.zeros_like, lambda x: x * torch.nan, negate_one_row]
)
def test_a_wrong_gradient_is_detected(
    data: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    compile_with(monkeypatch, backward=change)
    agreement = compare_compiled_step(job(data, precision), START)
    assert not agreement.agrees
    assert agreement.difference.startswith("the gradient of ")
    assert agreement.difference.split()[3] in dict(job(data, precision).parameters.state_dict())


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("change", [lambda x: x * 1.2, lambda x: x * torch.inf])
def test_a_wrong_loss_is_detected(
    data: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    compile_with(monkeypatch, forward=change)
    assert not compare_compiled_step(job(data, precision), START).agrees


def test_a_wrong_optimiser_is_detected(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_with(monkeypatch)
    compiled = job(data, "float32")
    (update_momentum,) = [
        p for p in compiled.optimiser.compilable_functions() if p.name == "update_momentum"
    ]
    correct = update_momentum._definition

    def wrong(momentum: torch.Tensor, *rest: torch.Tensor) -> None:
        correct(momentum, *rest)
        momentum[0] += 1.0

    update_momentum._call = wrong
    agreement = compare_compiled_step(compiled, START)
    assert agreement.difference.startswith("update_momentum of the optimiser is off by")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_difference_must_also_be_there_with_small_weights(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Large weights amplify rounding."""
    compile_with(monkeypatch)
    compared, sizes = job(data, precision), list[float]()
    masters = compared.parameters.views(compared.parameters.master)
    matrices = [name for name, weight in masters.items() if weight.ndim > 1]
    for name in matrices:
        masters[name].mul_(50)
    compared.parameters.refresh_compute()

    def differs_with_large_weights(*_: object) -> str | None:
        views = compared.parameters.views(compared.parameters.compute)
        sizes.append(max(float(views[name].float().square().mean()) ** 0.5 for name in matrices))
        return "the loss is off" if sizes[-1] > 0.1 else None

    monkeypatch.setattr(agreement_module, "_find_difference", differs_with_large_weights)
    before = compared.parameters.compute.clone()
    assert compare_compiled_step(compared, START).agrees
    assert sizes[1] <= 0.0201 < sizes[0]
    assert torch.equal(compared.parameters.compute, before)


def test_all_processes_compare_as_often_as_the_first(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, calls = job(data, "float32"), list[int]()
    monkeypatch.setattr(compared.process_group.__class__, "broadcast", lambda *_: "the loss is off")
    monkeypatch.setattr(agreement_module, "_find_difference", lambda *_: calls.append(1))
    assert compare_compiled_step(compared, START).agrees
    assert len(calls) == 2


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_job_is_restored(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    compile_with(monkeypatch)
    compared = job(data, precision)
    state = lambda: {  # noqa: E731
        **compared.parameters.state_dict(),
        **{f"optimiser.{name}": tensor for name, tensor in compared.optimiser.state_dict().items()},
        "compute": compared.parameters.compute,
    }
    before = {name: tensor.clone() for name, tensor in state().items()}
    compare_compiled_step(compared, START)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state().items())
    assert compared.parameters.precision == precision


def test_non_finite_batches_are_left_to_the_loop(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_with(monkeypatch)
    broken = job(data, "float32")
    broken.parameters.master.fill_(torch.nan)
    assert compare_compiled_step(broken, START).agrees


def test_the_memory_is_restored(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_with(monkeypatch)
    recipe = fit_recipe_to_data(
        small("transformer-xl", "encoder.memory_length=8", "text.tokenizer.kind=wordpiece"), data
    )
    compared = untrained_job(recipe, data, "float32", TrainingClock(3))
    compared.compile()
    agreement = compare_compiled_step(compared, START)
    assert agreement.agrees, agreement.difference
    assert compared.callbacks[-1].state() == {}
