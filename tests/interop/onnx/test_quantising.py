"""What is rounded in a graph is what onnxruntime computes then."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bertwright.encoder.kernels.eight_bits import saturates
from bertwright.interop.onnx.about import weights_beside, weights_file
from bertwright.interop.onnx.quantising import quantise
from bertwright.interop.onnx.ranges import Ranges
from bertwright.interop.onnx.session import Session

ROWS, WIDTH, HEADS = 6, 16, 2


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A product with a matrix, and one with a small matrix for every head."""
    draw = np.random.default_rng(0)
    constants = {
        "wide": draw.normal(size=(WIDTH, WIDTH)),
        "heads": draw.normal(size=(HEADS, WIDTH, 3)),
    }
    made = helper.make_graph(
        [
            helper.make_node("Cast", ["pieces"], ["states"], to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["states", "wide"], ["first"], "first"),
            helper.make_node("MatMul", ["first", "heads"], ["second"], "second"),
        ],
        "graph",
        [helper.make_tensor_value_info("pieces", TensorProto.INT64, ["rows", WIDTH])],
        [helper.make_tensor_value_info("second", TensorProto.FLOAT, [HEADS, "rows", 3])],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in constants.items()],
    )
    version = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(made, opset_imports=version, ir_version=10), tmp_path / "graph")
    return tmp_path / "graph"


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_products_with_several_matrices_stay_as_they_are(
    graph: Path, ahead: bool, beside: bool
) -> None:
    if beside:
        location = weights_file(graph).name
        onnx.save(
            onnx.load(graph), graph, save_as_external_data=True, location=location, size_threshold=0
        )
        assert weights_beside(graph)
    given = {"pieces": np.random.default_rng(1).integers(-9, 9, (ROWS, WIDTH))}
    small = graph.with_name("small")
    quantise(graph, small, saturates(), Ranges([given], ROWS) if ahead else None)
    right, found = (Session(each).run("second", given) for each in (graph, small))
    assert 1e-4 < np.abs(found - right).max() < 0.1 * np.abs(right).max()
    kept = {each.name: each.data_type for each in onnx.load(small).graph.initializer}
    assert kept["heads"] == TensorProto.FLOAT
    assert "wide" not in kept
