"""DistilBERT: a student of every other block, distilled in pre-training."""

import json
import shutil

from bertwright.compression.distillation.recipe import DistillationRecipe
from bertwright.compression.pruning.layers import prune_layers, select_layers
from bertwright.models.saving import TRAINING_FILE, WEIGHTS_FILE
from bertwright.training.reporters.metrics_file import read_metrics
from experiments.analyses.expecting import expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

TWO_LAYERS = "encoder.depth.layers=2"


def run(toy: ToyModels) -> CheckResults:
    """Compare copied blocks with and without a teacher, and random blocks."""
    teacher = toy.pretrained
    distillation = DistillationRecipe.load("distil-mlm").distillation(teacher)
    yield from _student_equals_teacher(toy)
    yield from _resume_is_exact(toy)
    copied = toy.folder / "c1-copied"
    prune_layers(teacher, select_layers(2, 4)).save(copied)
    losses: dict[str, list[float]] = {"copied, distilled": [], "copied": [], "random": []}
    for seed in toy.seeds:
        recipe = toy.recipe(TWO_LAYERS, seed=seed)
        for name, arm_losses in losses.items():
            start = None if name == "random" else copied
            arm_distillation = distillation if name == "copied, distilled" else None
            result = toy.pretrain(f"c1-{name}-{seed}", recipe, start, arm_distillation)
            arm_losses.append(result.metrics["masked_loss"])
    for name, other in (("copied, distilled", "copied"), ("copied", "random")):
        metric = f"masked loss, {name}"
        yield MeasuredValue(metric, losses[name], other, losses[other], expected_side="below")
    yield MeasuredValue("masked loss, teacher", [_teacher_loss(toy)])


def _teacher_loss(toy: ToyModels) -> float:
    """Return the teacher's loss on held-out text."""
    file = toy.folder / "pretrained" / TRAINING_FILE
    return json.loads(file.read_text(encoding="utf-8"))["result"]["masked_loss"]


def _student_equals_teacher(toy: ToyModels) -> CheckResults:
    """Check that a student equal to its teacher has no loss."""
    start = toy.folder / "pretrained"
    distillation = DistillationRecipe.load("distil-mlm").distillation(toy.pretrained)
    toy.pretrain("c1-same", toy.recipe(steps=1), start, distillation)
    lines = read_metrics(toy.folder / "c1-same" / "metrics.jsonl")
    line = next(line for line in lines if "loss" in line)
    for name in ("outputs", "states"):
        yield expect_equal(
            f"{name} of a student equal to its teacher", line[f"{name}_loss"], 0, 1e-6
        )


def _resume_is_exact(toy: ToyModels) -> CheckResults:
    """Check that a run with a teacher resumes exactly."""
    recipe = toy.recipe(TWO_LAYERS, "checkpoint_every=2", steps=4)
    distillation = DistillationRecipe.load("distil-mlm").distillation(toy.pretrained)
    whole, resumed = toy.folder / "c1-whole", toy.folder / "c1-resumed"
    toy.pretrain(whole.name, recipe, distillation=distillation)
    shutil.copytree(whole, resumed)
    (resumed / WEIGHTS_FILE).unlink()
    for checkpoint in sorted((resumed / "checkpoints").iterdir())[1:]:
        shutil.rmtree(checkpoint)
    toy.pretrain(resumed.name, None, distillation=distillation)
    weights = [(folder / WEIGHTS_FILE).read_bytes() for folder in (whole, resumed)]
    yield expect_same("resumed at its middle, the same weights", weights[0] == weights[1], True)


CHECK = CompressionCheck(
    "C1",
    "distil-mlm",
    "Do copied blocks learn more than random ones, and more still with a teacher?",
    "Sanh et al. 2019",
    run,
)
