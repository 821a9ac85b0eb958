"""A compiled step that computes something else is found, and one that rounds otherwise is not."""

from collections.abc import Callable

import pytest
import torch
from small_recipe import small
from wrong_code import compile_with

from bertwright.text.shards import Data
from bertwright.training.clock import Clock, Place
from bertwright.training.compilation.agreement import verdict_on
from bertwright.training.loop import Job
from bertwright.training.recipe_job import recipe_job
from bertwright.training.run_folder import fitted

START = Place(0, 0.0)
ONE_PHASE = "phases=[{objectives: {masked: {}}}]"
RECIPES = {
    "learned positions": ("bert", "objectives.next-sentence=null", "phases=[{}]"),
    "rotary positions": ("modern", ONE_PHASE),
}


def job(data: Data, precision: str, recipe: str = "rotary positions") -> Job:
    fits = fitted(small(*RECIPES[recipe]), data)
    compiled = recipe_job(fits, data, precision, Clock(1))
    compiled.compile()
    return compiled


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_right_code_agrees(
    data: Data, monkeypatch: pytest.MonkeyPatch, precision: str, recipe: str
) -> None:
    compile_with(monkeypatch)
    verdict = verdict_on(job(data, precision, recipe), START)
    assert verdict.agrees, verdict.difference


def spoil_one_row(x: torch.Tensor) -> torch.Tensor:
    spoilt = x.clone()
    if spoilt.ndim == 2:
        spoilt[0] *= -1
    return spoilt


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize(
    "change", [lambda x: x * 1.2, torch.zeros_like, lambda x: x * torch.nan, spoil_one_row]
)
def test_a_wrong_gradient_is_found_and_named(
    data: Data,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    compile_with(monkeypatch, backward=change)
    verdict = verdict_on(job(data, precision), START)
    assert not verdict.agrees
    assert verdict.difference.startswith("the gradient of ")
    assert verdict.difference.split()[3] in dict(job(data, precision).parameters.state())


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("change", [lambda x: x * 1.2, lambda x: x * torch.inf])
def test_a_wrong_loss_is_found(
    data: Data,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    compile_with(monkeypatch, forward=change)
    assert not verdict_on(job(data, precision), START).agrees


def test_a_wrong_optimiser_is_found(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_with(monkeypatch)
    compiled = job(data, "float32")
    (advance,) = [p for p in compiled.update.compilables() if p.name == "advance"]
    right = advance._definition

    def wrong(momentum: torch.Tensor, *rest: torch.Tensor) -> None:
        right(momentum, *rest)
        momentum[0] += 1.0

    advance._call = wrong
    verdict = verdict_on(compiled, START)
    assert verdict.difference.startswith("advance of the optimiser is off by")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_job_is_left_as_it_was(
    data: Data, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    compile_with(monkeypatch)
    compared = job(data, precision)
    state = lambda: {  # noqa: E731
        **compared.parameters.state(),
        **{f"optimiser.{name}": tensor for name, tensor in compared.update.state().items()},
        "compute": compared.parameters.compute,
    }
    before = {name: tensor.clone() for name, tensor in state().items()}
    verdict_on(compared, START)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state().items())
    assert compared.parameters.precision == precision


def test_a_batch_that_is_not_finite_is_the_business_of_the_loop(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_with(monkeypatch)
    broken = job(data, "float32")
    broken.parameters.master.fill_(torch.nan)
    assert verdict_on(broken, START).agrees


def test_memory_is_left_as_it_was(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_with(monkeypatch)
    recipe = fitted(
        small("transformer-xl", "encoder.memory=8", "text.tokenizer.kind=wordpiece"), data
    )
    compared = recipe_job(recipe, data, "float32", Clock(3))
    compared.compile()
    verdict = verdict_on(compared, START)
    assert verdict.agrees, verdict.difference
    assert compared.procedures[-1].state() == {}
