"""The meter of speed, on what is known: two copies of one model, and half of its blocks."""

from bertwright.analysis.planted.expecting import Expected
from bertwright.bench.artefacts.comparing import Artefact, ratio_interval, seconds_in_turns
from bertwright.shipping.shapes import Shape, blank
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "sentiment"
SHAPE = {"batch": 32, "length": 32, "threads": 1}
STEPS, ROUNDS, QUICK_ROUNDS = 20, 30, 8
LEVEL = 0.999
"""Of the interval of the copies: one of 95 % would leave 1 out in one check of twenty."""


def run(ground: Ground) -> Came:
    """All three take turns, each in a process of its own."""
    whole, half = ground.folder / TASK, ground.folder / "meter-half"
    blank(ground.tuned(TASK), Shape(2)).save(half)
    artefacts = [Artefact(folder, "float32") for folder in (whole, whole, half)]
    rounds = QUICK_ROUNDS if ground.quick else ROUNDS
    first, copy, short = seconds_in_turns(artefacts, SHAPE, STEPS, rounds)
    low, high = ratio_interval(first, copy, LEVEL)
    yield Expected("one, in the interval of the ratio of two copies", 1.0, low, high)
    alike, faster = ([a / b for a, b in zip(first, other, strict=True)] for other in (copy, short))
    yield Measured("times faster, a copy", alike, over="rounds")
    yield Measured("times faster, two blocks of four", faster, over="rounds")
    if not ground.quick:
        yield Expected("times faster, two blocks of four", sorted(faster)[rounds // 2], 1.5, 2.2)


ROW = Row(
    "meter",
    "speed",
    "Does the meter tell two copies apart, and what do half of the blocks save?",
    "",
    run,
    alone=True,
)
