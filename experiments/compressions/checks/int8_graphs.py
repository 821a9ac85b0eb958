"""8-bit ONNX graphs: agreement with float32, accuracy and size, with dynamic and static ranges."""

from bertwright.interop.loading import load
from bertwright.interop.onnx.calibration import ActivationCalibration
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE
from bertwright.interop.onnx.model import OnnxFineTunedModel
from bertwright.interop.onnx.quantization import quantise_graph
from bertwright.interop.onnx.session import OnnxSession
from bertwright.modules.inference.int8_linear import int8_sums_saturate
from experiments.analyses.expecting import expect_above
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

TASK = "inference"

NUM_CALIBRATION_EXAMPLES = 128
"""Training examples that static ranges are calibrated on."""


def run(toy: ToyModels) -> CheckResults:
    """Quantize models of several seeds."""
    dev, calibration = toy.evaluation_examples(TASK), toy.examples(TASK)[:NUM_CALIBRATION_EXAMPLES]
    modes = ("8 bits", "8 bits, static ranges")
    scores: dict[str, list[float]] = {mode: [] for mode in ("float32", *modes)}
    agreement: dict[str, list[float]] = {mode: [] for mode in modes}
    ratios: list[float] = []
    for seed in toy.seeds[:1] if toy.is_quick else toy.seeds:
        model = toy.finetune(toy.pretrained, TASK, seed).model
        folder = toy.folder / f"c19-{seed}"
        export_onnx(model, folder, int8=True)
        static = folder / "static.onnx"
        quantise_graph(
            folder / GRAPH_FILE,
            static,
            int8_sums_saturate(),
            ActivationCalibration.from_examples(model, calibration),
        )
        expected = model.predict(dev)
        scores["float32"].append(model.task.score(dev, expected)["accuracy"])
        for mode, graph in zip(modes, (folder / INT8_GRAPH_FILE, static), strict=True):
            quantized = load(folder)
            assert isinstance(quantized, OnnxFineTunedModel)
            quantized.session = OnnxSession(graph)
            predictions = quantized.predict(dev)
            scores[mode].append(model.task.score(dev, predictions)["accuracy"])
            pairs = list(zip(predictions, expected, strict=True))
            agreement[mode].append(sum(a.value == b.value for a, b in pairs) / len(pairs))
        ratios.append(
            (folder / GRAPH_FILE).stat().st_size / (folder / INT8_GRAPH_FILE).stat().st_size
        )
    for mode in modes:
        yield MeasuredValue(f"accuracy in {mode}", scores[mode], "float32", scores["float32"])
        yield MeasuredValue(f"fraction of equal predictions in {mode}", agreement[mode])
    yield expect_above("times smaller, names and operators included", ratios, 2.5)


CHECK = CompressionCheck(
    "C19",
    "eight-bits",
    "How often does a model in 8 bits predict the same as in 32?",
    "onnxruntime",
    run,
)
