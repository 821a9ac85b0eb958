"""Models as graphs, computed by onnxruntime."""

from collections.abc import Iterator

from bertwright.analysis.planted.expecting import Expected, above, below, same
from bertwright.compression.transfer.texts import written_in
from bertwright.interop.loading import load
from bertwright.interop.onnx.parity import TOLERANCE
from bertwright.interop.onnx.writing import export_onnx
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes.evened import evened
from bertwright.recipes.loading import systems
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.fine_tuned import FineTuned

QUICK_SYSTEMS = ("modern",)

TEXTS, LEAST = 64, 0.95


def run(ground: Ground) -> Came:
    """A fine-tuned model, and every system as it is drawn, at 2x128: batches of 1, 2 and 5 rows of
    1, 9 and 40 places, some of them padded. Of their graphs in 8 bits, vectors of texts."""
    yield from _fine_tuned(ground)
    apart: list[float] = []
    cosines: list[float] = []
    texts = [text for each in ground.judge("sentiment")[:TEXTS] for text in written_in(each)]
    for system in QUICK_SYSTEMS if ground.quick else systems():
        folder = ground.folder / f"c18-{system}"
        written = export_onnx(_drawn(system, ground), folder, int8=True)
        share = written.parity.difference / max(1.0, written.parity.scale)
        apart.append(share)
        yield below(f"{system}, difference over the greatest output", share, TOLERANCE)
        exact, small = (load(folder, how).embed(texts, normalise=True) for how in ("float32", None))
        cosines.append(float((exact * small).sum(1).mean()))
        yield above(f"{system}, mean cosine of vectors in 8 bits", cosines[-1], LEAST)
    yield Measured("difference over the greatest output", apart, over="systems")
    yield Measured("mean cosine of vectors in 8 bits", cosines, over="systems")


def _drawn(system: str, ground: Ground) -> TextModel:
    tokenizer = ground.data.tokenizer
    recipe = evened(system, "tiny", tokenizer.kind, 64, 1024)
    return TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer, "float32")


def _fine_tuned(ground: Ground) -> Iterator[Expected]:
    """The graph of a fine-tuned model answers as it does."""
    model, folder = ground.tuned("inference"), ground.folder / "c18-inference"
    export_onnx(model, folder)
    graph = load(folder)
    assert isinstance(graph, FineTuned), "a graph knows its task"
    examples = ground.judge("inference")
    pairs = zip(model.predict(examples), graph.predict(examples), strict=True)
    unlike = sum(own.answer != other.answer for own, other in pairs)
    yield same("answers of the graph that are not those of the model", unlike, 0)


ROW = Row(
    "C18",
    "graphs",
    "Does a graph compute what its model does?",
    "PyTorch's exporter, onnxruntime",
    run,
)
