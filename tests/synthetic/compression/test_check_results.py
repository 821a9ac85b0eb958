"""All quick checks of compression methods, and faults that they detect.

``make compressions`` runs the checks with longer training.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from bertwright.compression.module_replacement import ReplaceableLayerStack
from bertwright.compression.pruning.structured import Subnetwork
from bertwright.compression.quantization.sensitivity import quantize_after_training
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.recipes.loading import system_names
from bertwright.tasks.adapters.quantization import Quantization
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from experiments.compressions.check import MeasuredValue
from experiments.compressions.checks import (
    all_checks,
    quantization_aware_training,
    structured_pruning,
)
from experiments.compressions.run_checks import run_check
from experiments.compressions.toy_models import ToyModels, train_toy_models
from short_runs import shorten


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyModels]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield train_toy_models(tmp_path_factory.mktemp("toy"), is_quick=True)


@pytest.mark.full
@pytest.mark.parametrize("number", [check.number for check in all_checks()])
def test_check_holds(toy: ToyModels, number: str) -> None:
    outcome = run_check(toy, number)
    assert outcome.ok, outcome.problems
    assert outcome.checks or outcome.values


def test_trained_teacher_block_is_detected(toy: ToyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = ReplaceableLayerStack.forward

    def drift(layer_stack: ReplaceableLayerStack, *args, **kwargs) -> torch.Tensor:
        with torch.no_grad():
            for parameter in layer_stack.teacher_blocks[-1].parameters():
                parameter.mul_(1.001)
        return forward(layer_stack, *args, **kwargs)

    monkeypatch.setattr(ReplaceableLayerStack, "forward", drift)
    problems = run_check(toy, "C13").problems
    assert any("teacher.encoder.blocks.3" in problem for problem in problems), problems


def test_trained_head_of_a_replaced_model_is_detected(
    toy: ToyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn.Module, "requires_grad_", lambda module, *_: module)
    problems = run_check(toy, "C13").problems
    assert any("head" in p and "encoder.embeddings" in p for p in problems), problems


def test_baseline_is_quantized_like_the_model_trained_quantized(
    toy: ToyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Quantization] = []

    def recorded(
        model: FineTunedModel, quantization: Quantization, calibration: Examples
    ) -> FineTunedModel:
        used.append(quantization)
        return quantize_after_training(model, quantization, calibration)

    monkeypatch.setattr(quantization_aware_training, "quantize_after_training", recorded)
    names = [value.baseline for value in run_check(toy, "C11").values]
    assert {q.activations.ranges for q in used if q.activations} == {"static", "token"}
    assert all(q.activations and q.activations.bits == q.bits for q in used)
    for bits in quantization_aware_training.BITS:
        assert sum(f"rounded to {bits} bits" in name for name in names) == 2


def test_loss_beyond_seed_noise_is_detected() -> None:
    def holds(scores: list[float], quick: bool = False) -> list[bool]:
        results = quantization_aware_training.within_seed_noise(scores, [0.91, 0.93, 0.9], quick)
        return [isinstance(result, MeasuredValue) or result.is_met for result in results]

    assert holds([0.9, 0.92, 0.92]) == [True]
    assert holds([0.0, 0.93, 0.93]) == [False]
    assert holds([0.0, 0.0, 0.0], quick=True) == []


def test_system_that_cannot_be_pruned_any_more_is_detected(
    toy: ToyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune_config = Subnetwork.prune_config

    def refuse(subnetwork: Subnetwork, config: EncoderConfig) -> EncoderConfig:
        if config.depth.sharing == "all":
            raise UserError("no")
        return prune_config(subnetwork, config)

    monkeypatch.setattr(Subnetwork, "prune_config", refuse)
    problems = run_check(toy, "C16").problems
    assert any("albert" in problem for problem in problems), problems


def test_listed_systems_exist() -> None:
    known = structured_pruning.UNITS_ONLY | structured_pruning.UNSUPPORTED
    assert known <= set(system_names())
