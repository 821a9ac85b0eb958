"""Learning through 8 bits and fewer, against rounding what was learned without."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from bertwright.analysis.planted.expecting import Expected, above, equal, same
from bertwright.compression.quantisation import Quantised
from bertwright.compression.quantisation.scan import rounded_afterwards
from bertwright.model.grids import Grid, steps_within
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.fine_tuned import FineTuned

TASK = "sentiment"
BITS, QUICK_BITS = (8, 6, 4, 3), (8, 3)
RANGES = {"ranges seen before": "static", "ranges by place": "token"}


def run(ground: Ground) -> Came:
    """Weights and what they are multiplied with learn in so many bits, or both are rounded once a
    model has learned in 32: values within ranges that were seen before, or those of their place."""
    yield from _whole_numbers()
    plain = [ground.finetuned(ground.pretrained, TASK, seed) for seed in ground.seeds]
    whole = [found.scores[0] for found in plain]
    for bits in QUICK_BITS if ground.quick else BITS:
        through = [
            ground.finetuned(ground.pretrained, TASK, seed, adaptation=_how(bits)).scores[0]
            for seed in ground.seeds
        ]
        yield Measured(f"accuracy, learned in {bits} bits", through, "learned in 32", whole)
        if bits == 8:
            yield from as_good(through, whole, ground.quick)
        for name, ranges in RANGES.items():
            behind = [_afterwards(ground, own.model, _how(bits, ranges)) for own in plain]
            what = f"accuracy, rounded to {bits} bits, {name}"
            yield Measured(what, behind, "learned in 32", whole)


def as_good(found: Sequence[float], whole: Sequence[float], quick: bool) -> Came:
    """In the mean no worse than the worst seed in 32 bits; who hardly trains is not asked."""
    if not quick:
        yield above("accuracy, learned in 8 bits, in the mean", fmean(found), min(whole))


def _how(bits: int, ranges: str = "static") -> dict[str, Any]:
    """Weights, and what linear layers read and write, in so many bits."""
    weights = {"kind": "quantised", "bits": bits, "outside": bits, "by": "tensor"}
    return {**weights, "activations": {"bits": bits, "ranges": ranges}}


def _afterwards(ground: Ground, model: FineTuned, how: Mapping[str, Any]) -> float:
    """How a model scores that is rounded so."""
    judge, seen = ground.judge(TASK), ground.examples(TASK)[: ground.size.examples]
    said = rounded_afterwards(model, Quantised.of(how), seen).predict(judge)
    return model.task.score(judge, said)["accuracy"]


def _whole_numbers() -> Came:
    """Products of whole numbers, scaled once, are those of the rounded; what is rounded stays; and
    0 has a scale."""
    draw = torch.Generator().manual_seed(0)
    weight, values = torch.randn(24, 40, generator=draw), torch.randn(7, 40, generator=draw)
    grid = Grid(8, 24, 40)
    found = grid.standing(grid.rounded(weight))
    assert found is not None, "what was rounded stands on its grid"
    steps, levels = found
    reads = steps_within(values.amin(), values.amax(), 8, "symmetric")
    whole = reads.levels(values).int() @ levels.int().T
    scaled = whole.double() * (steps.scale.double().squeeze() * reads.scale.double())
    floats = reads.rounded(values).double() @ grid.rounded(weight).double().T
    yield equal("whole numbers against rounded ones", scaled.numpy(), floats, 1e-6)
    yield same(
        "rounded twice", grid.rounded(grid.rounded(weight)).equal(grid.rounded(weight)), True
    )
    yield _halves()
    nothing = torch.zeros(2, 3)
    yield same("nothing, rounded", Grid(8, 2, 3).rounded(nothing).equal(nothing), True)


def _halves() -> Expected:
    """A half goes to the even number."""
    steps = steps_within(torch.tensor(-127.0), torch.tensor(127.0), 8, "symmetric")
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])
    return equal("halves", steps.levels(halves).numpy(), [0, 2, 2, 0, -2], 0)


ROW = Row(
    "C11",
    "learned-bits",
    "Does a model that learns in 8 bits or fewer keep more than one that is rounded afterwards?",
    "Zafrir et al. 2019",
    run,
)
