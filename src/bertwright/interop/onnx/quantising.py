"""A graph in 8 bits: weights ahead, by channel; what they are multiplied with when it is known, or
within ranges that are known ahead.

Weights are rounded for every output of a matrix by itself: for all together a sentence encoder
loses four times as much. They are signed and what they meet is not, which the processors with
instructions for this (VNNI) multiply twice as fast as two that are unsigned.
"""

import tempfile
from pathlib import Path
from typing import Any

from bertwright.interop.onnx.about import weights_beside, weights_file
from bertwright.interop.onnx.ranges import OPERATORS, PRODUCTS, Feed, Ranges
from bertwright.interop.onnx.tracing import quiet


def quantise(graph: Path, out: Path, reduce_range: bool, ranges: Ranges | None = None) -> None:
    """Write a graph in 8 bits by onnxruntime: rewritten first, then quantised.

    ``reduce_range`` leaves weights 7 bits: where sums saturate. ``ranges`` are those of what they
    are multiplied with; without, each batch has its own.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    dynamic: Any = quantize_dynamic
    static: Any = quantize_static
    with tempfile.TemporaryDirectory() as folder, quiet():
        rewritten = Path(folder) / graph.name
        large: dict[str, Any] = {}
        if weights_beside(graph):
            location = weights_file(rewritten).name
            large = {"save_as_external_data": True, "all_tensors_to_one_file": True}
            large |= {"external_data_location": location}
        # The exporter has written down the shapes.
        quant_pre_process(str(graph), str(rewritten), skip_symbolic_shape=True, **large)
        weights = {
            "per_channel": True,
            "reduce_range": reduce_range,
            "weight_type": QuantType.QInt8,
            "nodes_to_exclude": _of_many_matrices(rewritten),
        }
        if ranges is None:
            dynamic(str(rewritten), str(out), **weights)
            return
        static(
            str(rewritten),
            str(out),
            Feed(ranges.batches[:1]),  # it asks for one, and takes the ranges that are stated
            activation_type=QuantType.QUInt8,
            op_types_to_quantize=OPERATORS,
            **weights,
            extra_options={
                "TensorQuantOverrides": ranges.overrides(rewritten, Path(folder)),
                # Products of two activations stay in float32, and so do the results of others: what
                # reads these has a scale of its own. Rows of a table are read in 8 bits.
                "MatMulConstBOnly": True,
                "OpTypesToExcludeOutputQuantization": list(PRODUCTS),
            },
        )


def _of_many_matrices(graph: Path) -> list[str]:
    """The products with constants that are several matrices, a small one for every head, which
    onnxruntime writes by channel and does not compute."""
    import onnx

    found: Any = onnx.load(str(graph), load_external_data=False).graph
    several = {constant.name for constant in found.initializer if len(constant.dims) > 2}
    products = (node for node in found.node if node.op_type in PRODUCTS)
    return [node.name for node in products if several.intersection(node.input)]
