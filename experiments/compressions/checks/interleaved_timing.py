"""Interleaved timing of known ratios: two copies of one model, and half of its blocks."""

from bertwright.compression.budget.shapes import ModelShape, untrained_model
from bertwright.timing.artefacts import Artefact, interleaved_seconds, ratio_interval
from experiments.analyses.expecting import ExpectedValue
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

TASK = "sentiment"
SHAPE = {"batch_size": 32, "max_length": 32, "threads": 1}
STEPS, QUICK_STEPS = 20, 4
ROUNDS, QUICK_ROUNDS = 30, 8
CONFIDENCE_LEVEL = 0.999
"""The level of the interval of the copies; 95 % would exclude 1 in one check of twenty."""


def run(toy: ToyModels) -> CheckResults:
    """Time three models, interleaved in separate processes."""
    whole, half = toy.folder / TASK, toy.folder / "meter-half"
    untrained_model(toy.fine_tuned(TASK), ModelShape(2)).save(half)
    artefacts = [Artefact(folder, "float32") for folder in (whole, whole, half)]
    steps, rounds = (QUICK_STEPS, QUICK_ROUNDS) if toy.is_quick else (STEPS, ROUNDS)
    first, copy, short = interleaved_seconds(artefacts, SHAPE, steps, rounds)
    ratios, speed_ups = (
        [a / b for a, b in zip(first, other, strict=True)] for other in (copy, short)
    )
    yield MeasuredValue("times faster, a copy", ratios, unit="rounds")
    yield MeasuredValue("times faster, two blocks of four", speed_ups, unit="rounds")
    if not toy.is_quick:  # other programs may slow down one of few rounds
        low, high = ratio_interval(first, copy, CONFIDENCE_LEVEL)
        yield ExpectedValue("one, in the interval of the ratio of two copies", 1.0, low, high)
        yield ExpectedValue(
            "times faster, two blocks of four", sorted(speed_ups)[rounds // 2], 1.5, 2.2
        )


CHECK = CompressionCheck(
    "meter",
    "speed",
    "Does timing show two copies as equal, and what do half of the blocks save?",
    "",
    run,
    is_timed=True,
)
