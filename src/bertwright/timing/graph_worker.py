"""The latency of ONNX graphs for one sequence, interleaved in separate processes."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bertwright.interop.graph.inputs import random_graph_inputs
from bertwright.interop.onnx.session import OnnxSession
from bertwright.timing.interleaved import StepTimer, TimedProcess

NUM_ROUNDS, STEPS_PER_ROUND = 7, 20
"""The number of rounds, the first to warm up, and of runs per round."""


def graph_milliseconds(
    graph_files: Sequence[Path], input_names: Sequence[str], output_name: str, sequence_length: int
) -> list[float]:
    """Return the median time of a run of each graph, for one sequence of a length."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                TimedProcess(
                    __name__,
                    {
                        "graph": str(path),
                        "inputs": input_names,
                        "output": output_name,
                        "length": sequence_length,
                    },
                    dict(os.environ),
                )
            )
            for path in graph_files
        ]
        rounds = [
            [process.seconds_per_step(STEPS_PER_ROUND) for process in processes]
            for _ in range(NUM_ROUNDS)
        ]
    return [1000 * median(times) for times in zip(*rounds[1:], strict=True)]


def main() -> None:
    """Run a graph on demand, in the worker process."""
    settings = json.loads(sys.argv[1])
    timer = StepTimer.from_standard_streams("cpu")
    session = OnnxSession(Path(settings["graph"]))
    inputs = random_graph_inputs(settings["inputs"], 2, 1, settings["length"])
    while True:
        timer.before_step()
        session.run(settings["output"], inputs)


if __name__ == "__main__":
    main()
