"""Quantise a graph to int8: weights per channel, activations dynamically or with static ranges.

With one scale per matrix instead, a sentence encoder loses four times as much accuracy. Weights are
signed and activations unsigned; VNNI instructions multiply these twice as fast as two unsigned
operands.
"""

import tempfile
from pathlib import Path
from typing import Any

from bertwright.interop.graph.tracing import silence_exporter
from bertwright.interop.onnx.calibration import (
    MATMUL_OPERATORS,
    QUANTISED_OPERATORS,
    ActivationCalibration,
    CalibrationBatchReader,
)
from bertwright.interop.onnx.manifest import external_data_file, has_external_data


def quantise_graph(
    graph_file: Path,
    output_file: Path,
    reduce_range: bool,
    calibration: ActivationCalibration | None = None,
) -> None:
    """Preprocess and quantise a graph with onnxruntime.

    ``reduce_range`` uses 7 bits for weights, for processors whose int8 sums saturate. Without
    ``calibration``, each batch computes its own activation ranges.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    dynamic: Any = quantize_dynamic
    static: Any = quantize_static
    with tempfile.TemporaryDirectory() as folder, silence_exporter():
        preprocessed = Path(folder) / graph_file.name
        external_data_options: dict[str, Any] = {}
        if has_external_data(graph_file):
            location = external_data_file(preprocessed).name
            external_data_options = {"save_as_external_data": True, "all_tensors_to_one_file": True}
            external_data_options |= {"external_data_location": location}
        # The exporter has already annotated the shapes.
        quant_pre_process(
            str(graph_file), str(preprocessed), skip_symbolic_shape=True, **external_data_options
        )
        weights = {
            "per_channel": True,
            "reduce_range": reduce_range,
            "weight_type": QuantType.QInt8,
            "nodes_to_exclude": _batched_matmul_nodes(preprocessed),
        }
        if calibration is None:
            dynamic(str(preprocessed), str(output_file), **weights)
            return
        static(
            str(preprocessed),
            str(output_file),
            # onnxruntime requires a reader, but the overrides below set the ranges.
            CalibrationBatchReader(calibration.batches[:1]),
            activation_type=QuantType.QUInt8,
            op_types_to_quantize=QUANTISED_OPERATORS,
            **weights,
            extra_options={
                "TensorQuantOverrides": calibration.tensor_overrides(preprocessed, Path(folder)),
                # Products of two activations and all outputs of products stay in float32.
                # Embedding lookups are int8.
                "MatMulConstBOnly": True,
                "OpTypesToExcludeOutputQuantization": list(MATMUL_OPERATORS),
            },
        )


def _batched_matmul_nodes(graph_file: Path) -> list[str]:
    """Return the nodes that multiply with a stack of matrices, one per head.

    onnxruntime quantises these per channel but cannot compute them.
    """
    import onnx

    graph: Any = onnx.load(str(graph_file), load_external_data=False).graph
    batched = {constant.name for constant in graph.initializer if len(constant.dims) > 2}
    products = (node for node in graph.node if node.op_type in MATMUL_OPERATORS)
    return [node.name for node in products if batched.intersection(node.input)]
