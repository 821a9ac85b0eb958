"""Quantization-aware training in 8 bits and fewer, against post-training quantization."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from bertwright.compression.quantization.sensitivity import quantize_after_training
from bertwright.models.quantized_weights import QuantizationGrid, quantization_steps
from bertwright.tasks.adapters.quantization import Quantization
from bertwright.tasks.fine_tuned_model import FineTunedModel
from experiments.analyses.expecting import ExpectedValue, expect_above, expect_equal, expect_same
from experiments.compressions.check import (
    CheckResults,
    CompressionCheck,
    MeasuredValue,
    accuracy_claim,
)
from experiments.compressions.toy_models import ToyModels

TASK = "majority"
BITS = 8, 4
RANGES = {"static ranges": "static", "ranges per token": "token"}


def run(toy: ToyModels) -> CheckResults:
    """Quantize weights and activations, in training or after training in float32.

    Activations have static ranges or ranges per token.
    """
    yield from _integer_products()
    float_runs = [toy.finetune(toy.pretrained, TASK, seed) for seed in toy.seeds]
    float_scores = [run.scores[0] for run in float_runs]
    for bits in BITS:
        adaptation = _quantization_settings(bits)
        scores = [
            toy.finetune(toy.pretrained, TASK, seed, adaptation=adaptation).scores[0]
            for seed in toy.seeds
        ]
        name = f"trained in {bits} bits"
        yield MeasuredValue(f"accuracy, {name}", scores, "float32", float_scores)
        if bits == 8:
            yield from within_seed_noise(scores, float_scores, toy.is_quick)
        for ranges_name, ranges in RANGES.items():
            settings = _quantization_settings(bits, ranges)
            rounded = [_post_training_score(toy, run.model, settings) for run in float_runs]
            baseline = f"rounded to {bits} bits, {ranges_name}"
            yield accuracy_claim(name, scores, baseline, rounded)


def within_seed_noise(
    scores: Sequence[float], float_scores: Sequence[float], is_quick: bool
) -> CheckResults:
    """Check that the mean is no worse than the worst seed in float32, unless the run is quick."""
    if not is_quick:
        yield expect_above("accuracy, trained in 8 bits, mean", fmean(scores), min(float_scores))


def _quantization_settings(bits: int, ranges: str = "static") -> dict[str, Any]:
    """Return settings that quantize weights, inputs and outputs of linear layers."""
    weights = {"kind": "quantised", "bits": bits, "other_bits": bits, "granularity": "tensor"}
    return {**weights, "activations": {"bits": bits, "ranges": ranges}}


def _post_training_score(
    toy: ToyModels, model: FineTunedModel, settings: Mapping[str, Any]
) -> float:
    """Return the score of a model after post-training quantization."""
    dev, calibration = toy.evaluation_examples(TASK), toy.examples(TASK)[: toy.size.examples]
    quantized = quantize_after_training(model, Quantization.from_settings(settings), calibration)
    return model.task.score(dev, quantized.predict(dev))["accuracy"]


def _integer_products() -> CheckResults:
    """Check integer products against products of rounded values, and special cases of rounding."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(24, 40, generator=generator)
    values = torch.randn(7, 40, generator=generator)
    grid = QuantizationGrid(8, 24, 40)
    on_grid = grid.levels_if_on_grid(grid.round(weight))
    assert on_grid is not None, "a rounded weight is on its grid"
    steps, levels = on_grid
    value_steps = quantization_steps(values.amin(), values.amax(), 8, "symmetric")
    products = value_steps.quantize(values).int() @ levels.int().T
    scaled = products.double() * (steps.scale.double().squeeze() * value_steps.scale.double())
    expected = value_steps.round(values).double() @ grid.round(weight).double().T
    yield expect_equal("integer products against rounded ones", scaled.numpy(), expected, 1e-6)
    yield expect_same(
        "rounded twice", grid.round(grid.round(weight)).equal(grid.round(weight)), True
    )
    yield _ties_round_to_even()
    zeros = torch.zeros(2, 3)
    yield expect_same("zeros, rounded", QuantizationGrid(8, 2, 3).round(zeros).equal(zeros), True)


def _ties_round_to_even() -> ExpectedValue:
    """Check that ties are rounded to even."""
    steps = quantization_steps(torch.tensor(-127.0), torch.tensor(127.0), 8, "symmetric")
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])
    return expect_equal("halves", steps.quantize(halves).numpy(), [0, 2, 2, 0, -2], 0)


CHECK = CompressionCheck(
    "C11",
    "learned-bits",
    "Does training in 8 bits or fewer cost less than rounding afterwards?",
    "Zafrir et al. 2019",
    run,
)
