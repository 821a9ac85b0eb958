"""Group-wise quantization of weights in few bits: errors of rounding, and accuracy of training."""

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor

from bertwright.compression.quantization.sharpness import block_sharpness, top_eigenvalue
from bertwright.models.quantized_weights import QuantizationGrid
from bertwright.tasks.adapters.lora import matrix_names
from experiments.analyses.expecting import ExpectedValue, expect_above, expect_below, expect_equal
from experiments.compressions.check import (
    CheckResults,
    CompressionCheck,
    MeasuredValue,
    accuracy_claim,
)
from experiments.compressions.toy_models import ToyModels

TASK = "majority"
BITS, GROUPS = (8, 6, 4, 3, 2), (1, 4, 16)
"""The number of groups of a matrix, each of as many neighbouring outputs."""

TRAINED_BITS, QUICK_TRAINED_BITS = (4, 2), (2,)
FEW_GROUPS, MANY_GROUPS = 1, 64
"""The groups of trained weights: a whole matrix, or every output of the smaller matrices."""


def run(toy: ToyModels) -> CheckResults:
    """Round to 8 to 2 bits, and train in 4 and 2."""
    model = toy.fine_tuned(TASK)
    names = matrix_names(model.task_model.encoder, ("attention", "feed_forward"))
    parameters = dict(model.task_model.encoder.named_parameters())
    yield from _rounding_errors({name: parameters[name].detach() for name in names})
    yield _power_iteration()
    examples = toy.examples(TASK)[: 2 * toy.size.few_examples]
    for sharpness in block_sharpness(model, examples, subsets=2):
        yield MeasuredValue(f"sharpness of block {sharpness.block}", [sharpness.mean])
    for bits in QUICK_TRAINED_BITS if toy.is_quick else TRAINED_BITS:
        few, many = (
            [_trained_score(toy, seed, bits, groups) for seed in toy.seeds]
            for groups in (FEW_GROUPS, MANY_GROUPS)
        )
        yield accuracy_claim(
            f"{bits} bits in {MANY_GROUPS} groups", many, f"in {FEW_GROUPS} group", few
        )


def _trained_score(toy: ToyModels, seed: int, bits: int, groups: int) -> float:
    granularity: Any = "tensor"
    if groups > 1:
        # The smaller matrices have as many outputs as the encoder is wide.
        granularity = {"kind": "group", "axis": "outputs", "size": 64 // groups}
    adaptation = {
        "kind": "quantised",
        "bits": bits,
        "granularity": granularity,
        "scheme": "asymmetric",
    }
    return toy.finetune(toy.pretrained, TASK, seed, adaptation=adaptation).scores[0]


def _rounding_errors(matrices: Mapping[str, Tensor]) -> Iterator[ExpectedValue]:
    """Check that errors are at most half a step, and decrease with more groups and more bits."""
    means: dict[tuple[int, int], float] = {}
    max_excess, max_error = 0, 0.0
    for bits, groups in product(BITS, GROUPS):
        squares = 0.0
        for weight in matrices.values():
            grid = QuantizationGrid(bits, len(weight) // groups, weight.shape[1])
            rounded = grid.round(weight)
            steps = grid.steps(grid.to_groups(weight.float()))
            half = QuantizationGrid.from_groups(
                steps.scale.expand_as(grid.to_groups(weight)) / 2, weight.shape
            )
            max_error = max(max_error, float(((rounded - weight).abs() / half).max()))
            values = max(len(group.unique()) for group in grid.to_groups(rounded).unbind(0))
            max_excess = max(max_excess, values - 2**bits)
            squares += float((rounded - weight).square().sum())
        means[bits, groups] = squares
    yield expect_below("errors over half a step", max_error, 1 + 1e-4)
    yield expect_below("values of a group above 2^bits", max_excess, 0)
    yield from (
        expect_above(f"squared error, {bits} bits: {one} groups less {other}", lead, 0.0)
        for bits in BITS
        for one, other in pairwise(GROUPS)
        for lead in (means[bits, one] - means[bits, other],)
    )
    yield from (
        expect_above(f"squared error, {groups} groups: {fewer} bits less {bits}", lead, 0.0)
        for groups in GROUPS
        for bits, fewer in pairwise(BITS)
        for lead in (means[fewer, groups] - means[bits, groups],)
    )


def _power_iteration() -> ExpectedValue:
    """Check power iteration on a matrix with known eigenvalues."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.tensor([-3.0, 1.5, 0.5, 0.2, 0.1], dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q
    matrix = basis @ torch.diag(spectrum) @ basis.T
    start = torch.randn(5, generator=generator, dtype=torch.float64)
    eigenvalue = top_eigenvalue(lambda vector: [matrix @ vector[0]], [start])
    return expect_equal("the eigenvalue of largest magnitude, -3", eigenvalue, -3.0, 0.03)


CHECK = CompressionCheck(
    "C10",
    "few-bits",
    "What do few bits cost, and how much of it do small groups recover?",
    "Shen et al. 2020",
    run,
)
