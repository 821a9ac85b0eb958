"""A student of every other block that learns from text what its teacher says of every piece."""

import json
import shutil

from bertwright.analysis.planted.expecting import equal, same
from bertwright.compression.lessons.lessons import Lessons
from bertwright.compression.students import layers_taken, shortened
from bertwright.model.folder import TRAINING, WEIGHTS
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.training.metrics_file import read_metrics

TWO = "encoder.depth.layers=2"


def run(ground: Ground) -> Came:
    """Copied blocks with the teacher, without it, and blocks that are drawn."""
    teacher = ground.pretrained
    taught = Lessons.load("distil-mlm").of(teacher)
    yield from _nothing_to_learn(ground)
    yield from _resumed(ground)
    begun = ground.folder / "c1-begun"
    shortened(teacher, layers_taken(2, 4)).save(begun)
    losses: dict[str, list[float]] = {"copied, taught": [], "copied": [], "drawn": []}
    for seed in ground.seeds:
        recipe = ground.recipe(TWO, seed=seed)
        for name, found in losses.items():
            start = None if name == "drawn" else begun
            who = taught if name == "copied, taught" else None
            learned = ground.learned(f"c1-{name}-{seed}", recipe, start, who)
            found.append(learned.figures["masked_loss"])
    for name, other in (("copied, taught", "copied"), ("copied", "drawn")):
        what = f"masked loss, {name}"
        yield Measured(what, losses[name], other, losses[other], wanted="below")
    yield Measured("masked loss, teacher", [_of_the_teacher(ground)])


def _of_the_teacher(ground: Ground) -> float:
    """On the held-out text."""
    about = json.loads((ground.folder / "pretrained" / TRAINING).read_text(encoding="utf-8"))
    return about["result"]["masked_loss"]


def _nothing_to_learn(ground: Ground) -> Came:
    """A student that is its teacher."""
    start = ground.folder / "pretrained"
    taught = Lessons.load("distil-mlm").of(ground.pretrained)
    ground.learned("c1-same", ground.recipe(steps=1), start, taught)
    lines = read_metrics(ground.folder / "c1-same" / "metrics.jsonl")
    line = next(line for line in lines if "loss" in line)
    for name in ("outputs", "states"):
        yield equal(f"{name} of a student that is its teacher", line[f"{name}_loss"], 0, 1e-6)


def _resumed(ground: Ground) -> Came:
    """A run with a teacher, from its middle."""
    recipe = ground.recipe(TWO, "checkpoint_every=2", steps=4)
    taught = Lessons.load("distil-mlm").of(ground.pretrained)
    whole, again = ground.folder / "c1-whole", ground.folder / "c1-again"
    ground.learned(whole.name, recipe, teacher=taught)
    shutil.copytree(whole, again)
    (again / WEIGHTS).unlink()
    for checkpoint in sorted((again / "checkpoints").iterdir())[1:]:
        shutil.rmtree(checkpoint)
    ground.learned(again.name, None, teacher=taught)
    weights = [(folder / WEIGHTS).read_bytes() for folder in (whole, again)]
    yield same("resumed at its middle, the same weights", weights[0] == weights[1], True)


ROW = Row(
    "C1",
    "distil-mlm",
    "Do copied blocks learn more than drawn ones, and more still from a teacher?",
    "Sanh et al. 2019",
    run,
)
