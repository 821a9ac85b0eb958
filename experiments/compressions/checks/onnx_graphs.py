"""Models as ONNX graphs, computed by onnxruntime."""

from collections.abc import Iterator

from bertwright.compression.distillation.transfer.examples import example_texts
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.parity import OUTPUT_TOLERANCE
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes.loading import system_names
from bertwright.tasks.fine_tuned_model import FineTunedModel
from experiments.analyses.expecting import ExpectedValue, expect_above, expect_below, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels
from experiments.equalised import equalised_recipe

QUICK_SYSTEMS = ("modern",)

NUM_TEXTS, MIN_COSINE = 64, 0.95


def run(toy: ToyModels) -> CheckResults:
    """Export a fine-tuned model, and every untrained system at 2x128.

    Graphs are compared on batches of 1, 2 and 5 sequences of 1, 9 and 40 positions, some of them
    padded; 8-bit graphs by the vectors of texts.
    """
    yield from _fine_tuned_graph(toy)
    differences: list[float] = []
    cosines: list[float] = []
    texts = [
        text
        for example in toy.evaluation_examples("sentiment")[:NUM_TEXTS]
        for text in example_texts(example)
    ]
    for system in QUICK_SYSTEMS if toy.is_quick else system_names():
        folder = toy.folder / f"c18-{system}"
        export = export_onnx(_untrained_model(system, toy), folder, int8=True)
        difference = export.parity.max_difference / max(1.0, export.parity.max_output)
        differences.append(difference)
        yield expect_below(
            f"{system}, difference over the largest output", difference, OUTPUT_TOLERANCE
        )
        vectors, int8_vectors = (
            load(folder, precision).embed(texts, normalise=True) for precision in ("float32", None)
        )
        cosines.append(float((vectors * int8_vectors).sum(1).mean()))
        yield expect_above(f"{system}, mean cosine of vectors in 8 bits", cosines[-1], MIN_COSINE)
    yield MeasuredValue("difference over the largest output", differences, unit="systems")
    yield MeasuredValue("mean cosine of vectors in 8 bits", cosines, unit="systems")


def _untrained_model(system: str, toy: ToyModels) -> TextModel:
    tokenizer = toy.data.tokenizer
    recipe = equalised_recipe(system, "tiny", tokenizer.kind, 64, 1024)
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32")


def _fine_tuned_graph(toy: ToyModels) -> Iterator[ExpectedValue]:
    """Check that the graph of a fine-tuned model has the same predictions."""
    model, folder = toy.fine_tuned("inference"), toy.folder / "c18-inference"
    export_onnx(model, folder)
    graph = load(folder)
    assert isinstance(graph, FineTunedModel)
    examples = toy.evaluation_examples("inference")
    pairs = zip(model.predict(examples), graph.predict(examples), strict=True)
    num_different = sum(prediction.value != other.value for prediction, other in pairs)
    yield expect_same("predictions of the graph that differ from the model's", num_different, 0)


CHECK = CompressionCheck(
    "C18",
    "graphs",
    "Does a graph compute what its model does?",
    "PyTorch's exporter, onnxruntime",
    run,
)
