"""Run a graph with onnxruntime on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.hardware import num_cores
from bertwright.core.optional_dependencies import require_library
from bertwright.interop.graph.inputs import GraphInputs

OPTIMISATION_LEVEL = "ORT_ENABLE_ALL"
"""How much onnxruntime optimises a graph before its first run."""

DISABLED_FUSIONS = ["SkipLayerNormFusion"]
"""Disabled on CPUs, where the fused add and norm is several times slower (onnxruntime 1.32)."""


class OnnxSession:
    """An onnxruntime session that computes only the requested output.

    ``threads`` per operator defaults to the cores of this process. Raises MissingExtra without
    onnxruntime, and UserError for a damaged file.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        require_library("onnxruntime", "onnx")
        import onnxruntime

        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or num_cores()
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, OPTIMISATION_LEVEL
        )
        options.log_severity_level = 3
        self._run_options: Any = onnxruntime.RunOptions()
        self._run_options.only_execute_path_to_fetches = True
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=DISABLED_FUSIONS,
            )
        except Exception as error:  # onnxruntime's classes have no common base
            raise UserError(f"{path} is damaged ({error}): export the model again") from error
        self.threads: int = self._session.get_session_options().intra_op_num_threads

    def run(self, output_name: str, inputs: GraphInputs) -> NDArray[np.float32]:
        """Return one output."""
        return self._session.run([output_name], dict(inputs), self._run_options)[0]
