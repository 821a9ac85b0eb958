"""A graph that onnxruntime computes, on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.extras import require
from bertwright.interop.onnx.inputs import Given
from bertwright.machine.cores import num_cores

LEVEL = "ORT_ENABLE_ALL"
"""How far onnxruntime rewrites a graph before it is first run."""

SLOW = ["SkipLayerNormFusion"]
"""What it does not rewrite: on a CPU its sum and norm in one take several times as long as the two
of them (onnxruntime 1.32)."""


class Session:
    """The graph of a file; what is not asked for is not computed.

    ``threads`` is how many compute one operator, None for the cores that this process may use; it
    holds for every run. Errors: MissingExtra without onnxruntime; UserError for a damaged file.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        require("onnxruntime", "onnx")
        import onnxruntime

        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or num_cores()
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVEL)
        options.log_severity_level = 3
        self._asked: Any = onnxruntime.RunOptions()
        self._asked.only_execute_path_to_fetches = True
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=SLOW,
            )
        except Exception as error:  # its classes are not public, and have no base but this one
            raise UserError(f"{path} is damaged ({error}): export the model again") from error
        self.threads: int = self._session.get_session_options().intra_op_num_threads

    def run(self, output: str, given: Given) -> NDArray[np.float32]:
        """One of the outputs, of inputs by their names."""
        return self._session.run([output], dict(given), self._asked)[0]
