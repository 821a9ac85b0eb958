"""Graphs whose weights have 8 bits: how often they answer alike, and what they weigh."""

from bertwright.analysis.planted.expecting import above
from bertwright.interop.loading import load
from bertwright.interop.onnx import export_onnx
from bertwright.interop.onnx.about import GRAPH, INT8
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.fine_tuned import FineTuned

TASK = "inference"


def run(ground: Ground) -> Came:
    """Models of several seeds, each as it is and as its graph in 8 bits."""
    judge = ground.judge(TASK)
    scores: list[float] = []
    others: list[float] = []
    alike: list[float] = []
    smaller: list[float] = []
    for seed in ground.seeds[:1] if ground.quick else ground.seeds:
        model = ground.finetuned(ground.pretrained, TASK, seed).model
        folder = ground.folder / f"c19-{seed}"
        export_onnx(model, folder, int8=True)
        small = load(folder)
        assert isinstance(small, FineTuned), "a graph knows its task"
        said = [each.predict(judge) for each in (small, model)]
        score, other = (model.task.score(judge, own)["accuracy"] for own in said)
        scores.append(score)
        others.append(other)
        pairs = list(zip(*said, strict=True))
        alike.append(sum(a.answer == b.answer for a, b in pairs) / len(pairs))
        smaller.append((folder / GRAPH).stat().st_size / (folder / INT8).stat().st_size)
    yield Measured("accuracy in 8 bits", scores, "float32", others)
    yield Measured("share of answers that are the same", alike)
    yield above("times smaller, names and operators included", smaller, 2.5)


ROW = Row(
    "C19",
    "eight-bits",
    "How often does a model in 8 bits answer as it did in 32?",
    "onnxruntime",
    run,
)
