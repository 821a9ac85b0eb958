"""Quantised graphs compute only what onnxruntime can compute in int8."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bertwright.interop.onnx.calibration import ActivationCalibration
from bertwright.interop.onnx.manifest import external_data_file, has_external_data
from bertwright.interop.onnx.quantization import quantise_graph
from bertwright.interop.onnx.session import OnnxSession
from bertwright.modules.inference.int8_linear import int8_sums_saturate

NUM_SEQUENCES, WIDTH, HEADS = 6, 16, 2


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A product with a matrix, and one with a small matrix per head."""
    generator = np.random.default_rng(0)
    constants = {
        "wide": generator.normal(size=(WIDTH, WIDTH)),
        "heads": generator.normal(size=(HEADS, WIDTH, 3)),
    }
    onnx_graph = helper.make_graph(
        [
            helper.make_node("Cast", ["tokens"], ["states"], to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["states", "wide"], ["first"], "first"),
            helper.make_node("MatMul", ["first", "heads"], ["second"], "second"),
        ],
        "graph",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", WIDTH])],
        [helper.make_tensor_value_info("second", TensorProto.FLOAT, [HEADS, "batch", 3])],
        [
            numpy_helper.from_array(values.astype(np.float32), name)
            for name, values in constants.items()
        ],
    )
    version = [helper.make_opsetid("", 20)]
    onnx.save(
        helper.make_model(onnx_graph, opset_imports=version, ir_version=10), tmp_path / "graph"
    )
    return tmp_path / "graph"


@pytest.mark.parametrize("external_data", [False, True])
@pytest.mark.parametrize("is_static", [False, True])
def test_products_with_stacked_matrices_stay_float32(
    graph: Path, is_static: bool, external_data: bool
) -> None:
    if external_data:
        location = external_data_file(graph).name
        onnx.save(
            onnx.load(graph), graph, save_as_external_data=True, location=location, size_threshold=0
        )
        assert has_external_data(graph)
    inputs = {"tokens": np.random.default_rng(1).integers(-9, 9, (NUM_SEQUENCES, WIDTH))}
    quantised = graph.with_name("small")
    quantise_graph(
        graph,
        quantised,
        int8_sums_saturate(),
        ActivationCalibration([inputs], NUM_SEQUENCES) if is_static else None,
    )
    expected, actual = (OnnxSession(file).run("second", inputs) for file in (graph, quantised))
    assert 1e-4 < np.abs(actual - expected).max() < 0.1 * np.abs(expected).max()
    dtypes = {tensor.name: tensor.data_type for tensor in onnx.load(quantised).graph.initializer}
    assert dtypes["heads"] == TensorProto.FLOAT
    assert "wide" not in dtypes
