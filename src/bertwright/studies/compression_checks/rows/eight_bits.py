"""Graphs whose weights have 8 bits: how often they answer alike, and what they weigh; within ranges
that every batch shows, and within those that training examples have shown."""

from bertwright.analysis.planted.expecting import above
from bertwright.encoder.kernels.eight_bits import saturates
from bertwright.interop.loading import load
from bertwright.interop.onnx.about import GRAPH, INT8
from bertwright.interop.onnx.quantising import quantise
from bertwright.interop.onnx.ranges import Ranges
from bertwright.interop.onnx.reading import OnnxFineTuned
from bertwright.interop.onnx.session import Session
from bertwright.interop.onnx.writing import export_onnx
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "inference"

SEEN = 128
"""Training examples that show ranges."""


def run(ground: Ground) -> Came:
    """Models of several seeds, each as it is and as its graphs in 8 bits."""
    judge, learned = ground.judge(TASK), ground.examples(TASK)[:SEEN]
    ways = ("8 bits", "8 bits, ranges found ahead")
    scores: dict[str, list[float]] = {way: [] for way in ("float32", *ways)}
    alike: dict[str, list[float]] = {way: [] for way in ways}
    smaller: list[float] = []
    for seed in ground.seeds[:1] if ground.quick else ground.seeds:
        model = ground.finetuned(ground.pretrained, TASK, seed).model
        folder = ground.folder / f"c19-{seed}"
        export_onnx(model, folder, int8=True)
        ahead = folder / "ahead.onnx"
        quantise(folder / GRAPH, ahead, saturates(), Ranges.of(model, learned))
        exact = model.predict(judge)
        scores["float32"].append(model.task.score(judge, exact)["accuracy"])
        for way, graph in zip(ways, (folder / INT8, ahead), strict=True):
            small = load(folder)
            assert isinstance(small, OnnxFineTuned), "a graph knows its task"
            small.session = Session(graph)
            said = small.predict(judge)
            scores[way].append(model.task.score(judge, said)["accuracy"])
            pairs = list(zip(said, exact, strict=True))
            alike[way].append(sum(a.answer == b.answer for a, b in pairs) / len(pairs))
        smaller.append((folder / GRAPH).stat().st_size / (folder / INT8).stat().st_size)
    for way in ways:
        yield Measured(f"accuracy in {way}", scores[way], "float32", scores["float32"])
        yield Measured(f"share of answers that are the same in {way}", alike[way])
    yield above("times smaller, names and operators included", smaller, 2.5)


ROW = Row(
    "C19",
    "eight-bits",
    "How often does a model in 8 bits answer as it did in 32?",
    "onnxruntime",
    run,
)
