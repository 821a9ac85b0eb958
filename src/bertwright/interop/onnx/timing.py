"""Milliseconds that graphs take for one row: each in a process of its own, in turns."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bertwright.bench.turns import Contestant, Turns
from bertwright.interop.onnx.inputs import rows
from bertwright.interop.onnx.session import Session

ROUNDS, STEPS = 7, 20
"""Turns that every graph takes, and the runs of a turn; the first turn warms up."""


def milliseconds(
    graphs: Sequence[Path], inputs: Sequence[str], output: str, length: int
) -> list[float]:
    """The median of one run, for one row of this length; of every graph."""
    with ExitStack() as stack:
        contestants = [
            stack.enter_context(
                Contestant(
                    __name__,
                    {"graph": str(path), "inputs": inputs, "output": output, "length": length},
                    dict(os.environ),
                )
            )
            for path in graphs
        ]
        turns = [
            [contestant.seconds_per_step(STEPS) for contestant in contestants]
            for _ in range(ROUNDS)
        ]
    return [1000 * median(own) for own in zip(*turns[1:], strict=True)]


def main() -> None:
    """The side of a graph."""
    settings = json.loads(sys.argv[1])
    turns = Turns.over_standard_streams("cpu")
    session = Session(Path(settings["graph"]))
    given = rows(settings["inputs"], 2, 1, settings["length"])
    while True:
        turns.before_step()
        session.run(settings["output"], given)


if __name__ == "__main__":
    main()
