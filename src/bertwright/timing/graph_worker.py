"""The latency of ONNX graphs for one sequence, interleaved in separate processes."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bertwright.interop.graph.inputs import random_graph_inputs
from bertwright.interop.onnx.session import OnnxSession
from bertwright.timing.interleaved import StepTimer, time_processes

NUM_ROUNDS, STEPS_PER_ROUND = 6, 20
"""Number of measured rounds, and of runs per round."""


def graph_milliseconds(
    graph_files: Sequence[Path], input_names: Sequence[str], output_name: str, sequence_length: int
) -> list[float]:
    """Return the median milliseconds per run of each graph, for one sequence of this length."""
    settings = {"inputs": input_names, "output": output_name, "length": sequence_length}
    programs = [(__name__, {"graph": str(path), **settings}) for path in graph_files]
    seconds = time_processes(programs, STEPS_PER_ROUND, NUM_ROUNDS)
    return [1000 * median(times) for times in seconds]


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
