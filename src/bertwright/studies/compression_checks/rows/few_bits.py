"""Weights of few bits in groups: how far they are from what they were, what they still learn."""

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor

from bertwright.analysis.planted.expecting import Expected, above, below, equal
from bertwright.compression.quantisation.sharpness import sharpness, top_eigenvalue
from bertwright.model.grids import Grid
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.adaptation.low_rank import matrices_of

TASK = "sentiment"
BITS, GROUPS = (8, 6, 4, 3, 2), (1, 4, 16)
"""Groups are of a matrix, each of as many neighbouring outputs."""

TRAINED, QUICK_TRAINED = tuple(product((3, 2), GROUPS)), ((2, 1), (2, 16))


def run(ground: Ground) -> Came:
    """Rounded as they are by 8 to 2 bits, and trained through 3 and 2."""
    model = ground.tuned(TASK)
    names = matrices_of(model.net.encoder, ("attention", "feed_forward"))
    known = dict(model.net.encoder.named_parameters())
    yield from _errors({name: known[name].detach() for name in names})
    yield _known_spectrum()
    examples = ground.examples(TASK)[: 2 * ground.size.few]
    for own in sharpness(model, examples, subsets=2):
        yield Measured(f"sharpness of block {own.block}", [own.mean])
    for bits, groups in QUICK_TRAINED if ground.quick else TRAINED:
        runs = (_learned(ground, seed, bits, groups) for seed in ground.seeds)
        yield Measured(f"accuracy, {bits} bits in {groups} groups", list(runs))


def _learned(ground: Ground, seed: int, bits: int, groups: int) -> float:
    by: Any = "tensor"
    if groups > 1:
        # The smaller matrices have as many outputs as the encoder is wide.
        by = {"kind": "group", "axis": "outputs", "size": 64 // groups}
    adaptation = {"kind": "quantised", "bits": bits, "by": by, "scheme": "asymmetric"}
    found = ground.finetuned(ground.pretrained, TASK, seed, adaptation=adaptation)
    return found.scores[0]


def _errors(matrices: Mapping[str, Tensor]) -> Iterator[Expected]:
    """Of rounding: at most half of a step, smaller with more groups and with more bits."""
    means: dict[tuple[int, int], float] = {}
    most, beyond = 0, 0.0
    for bits, groups in product(BITS, GROUPS):
        squares = 0.0
        for weight in matrices.values():
            grid = Grid(bits, len(weight) // groups, weight.shape[1])
            rounded = grid.rounded(weight)
            steps = grid.steps(grid.cut(weight.float()))
            half = Grid.joined(steps.scale.expand_as(grid.cut(weight)) / 2, weight.shape)
            beyond = max(beyond, float(((rounded - weight).abs() / half).max()))
            values = max(len(group.unique()) for group in grid.cut(rounded).unbind(0))
            most = max(most, values - 2**bits)
            squares += float((rounded - weight).square().sum())
        means[bits, groups] = squares
    yield below("errors over half a step", beyond, 1 + 1e-4)
    yield below("values that a group has more than 2^bits", most, 0)
    rising = [
        above(f"squared error, {bits} bits: {one} groups less {other}", lead, 0.0)
        for bits in BITS
        for one, other in pairwise(GROUPS)
        for lead in (means[bits, one] - means[bits, other],)
    ]
    rising += [
        above(f"squared error, {groups} groups: {fewer} bits less {bits}", lead, 0.0)
        for groups in GROUPS
        for bits, fewer in pairwise(BITS)
        for lead in (means[fewer, groups] - means[bits, groups],)
    ]
    yield from rising


def _known_spectrum() -> Expected:
    """Power iteration, on a matrix whose eigenvalues are known."""
    draw = torch.Generator().manual_seed(0)
    spectrum = torch.tensor([-3.0, 1.5, 0.5, 0.2, 0.1], dtype=torch.float64)
    turned = torch.linalg.qr(torch.randn(5, 5, generator=draw, dtype=torch.float64)).Q
    matrix = turned @ torch.diag(spectrum) @ turned.T
    start = torch.randn(5, generator=draw, dtype=torch.float64)
    found = top_eigenvalue(lambda vector: [matrix @ vector[0]], [start])
    return equal("the eigenvalue of the greatest magnitude, which is -3", found, -3.0, 0.03)


ROW = Row(
    "C10",
    "few-bits",
    "What do weights lose by few bits, and how much of it do small groups give back?",
    "Shen et al. 2020",
    run,
)
