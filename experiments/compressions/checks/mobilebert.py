"""MobileBERT: a student with narrow blocks, distilled block by block from a wide teacher."""

from pathlib import Path

import torch

from bertwright.compression.distillation.recipe import DistillationRecipe
from bertwright.encoder.bottleneck import BottleneckProjection
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.modules.norms import NoNorm, NoNormConfig
from bertwright.training.reporters.metrics_file import read_metrics
from experiments.analyses.expecting import expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

POST_NORM = "encoder.norm.placement=post"
TEACHER = (
    POST_NORM,
    "encoder.bottleneck.width=128",
    "encoder.embeddings.width=16",
    "encoder.mixer.head_width=32",
)
STUDENT = (
    POST_NORM,
    "encoder.bottleneck.width=16",
    "encoder.embeddings.width=16",
    "encoder.mixer.head_width=4",
)
LAYERS = 4


def run(toy: ToyModels) -> CheckResults:
    """Compare block-by-block distillation with as much plain training."""
    yield from _no_norm_is_affine()
    yield from _one_block_moves()
    recipe = toy.recipe(*TEACHER, steps=toy.size.teacher_steps, system="ib-bert")
    teacher = TextModel(*load_model(toy.pretrain("c6-teacher", recipe).folder), "float32")
    distillation = DistillationRecipe.load("mobile-progressive").distillation(teacher)
    losses: dict[str, list[float]] = {"distilled": [], "alone": []}
    ratios: dict[int, list[float]] = {}
    for seed in toy.seeds:
        recipe = toy.recipe(*STUDENT, seed=seed, system="mobilebert")
        for name, arm_losses in losses.items():
            arm_distillation = distillation if name == "distilled" else None
            result = toy.pretrain(f"c6-{name}-{seed}", recipe, distillation=arm_distillation)
            arm_losses.append(result.metrics["masked_loss"])
        file = toy.folder / f"c6-distilled-{seed}" / "metrics.jsonl"
        for block, distances in _distances_by_block(file).items():
            ratios.setdefault(block, []).append(distances[-1] / distances[0])
    yield MeasuredValue(
        "masked loss, distilled block by block", losses["distilled"], "alone", losses["alone"]
    )
    for block, values in ratios.items():
        yield MeasuredValue(
            f"distance of states of block {block}, end of its interval over its start", values
        )


def _distances_by_block(file: Path) -> dict[int, list[float]]:
    """Return the distances of each block's states to the teacher's, recorded in its interval."""
    stages = DistillationRecipe.load("mobile-progressive").stages
    interval = stages[0].fraction / sum(stage.fraction for stage in stages) / LAYERS
    distances: dict[int, list[float]] = {}
    for line in read_metrics(file):
        block = int(line["progress"] / interval)
        if block < LAYERS and "states_loss" in line:
            distances.setdefault(block, []).append(line["states_loss"])
    return {block: values for block, values in distances.items() if len(values) > 1}


def _no_norm_is_affine() -> CheckResults:
    """Check that NoNorm is a gain and a bias, which can be folded into the matrix before it."""
    generator = torch.Generator().manual_seed(0)
    projection = BottleneckProjection(12, 8, NoNormConfig())
    x = torch.randn(6, 12, generator=generator)
    norm = projection.norm
    assert isinstance(norm, NoNorm)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(8, generator=generator))
        outputs, inner = projection(x), projection.dense(x)
        expected = inner * norm.weight + norm.bias
        yield expect_equal("NoNorm as an affine map", outputs.numpy(), expected, 0)
        projection.fold_norm()
        yield expect_equal("folded into the matrix before it", projection(x).numpy(), outputs, 1e-5)


def _one_block_moves() -> CheckResults:
    """Check that blocks are frozen before their interval, and slower after it."""
    stage = DistillationRecipe.load("mobile-progressive").stages[0]
    assert stage.block_schedule is not None
    for block in range(LAYERS):
        middle = (block + 0.5) / LAYERS
        before, *scales, after = stage.block_schedule.learning_rate_scales(LAYERS, middle, middle)
        moving = [index for index, scale in enumerate(scales) if scale > 0]
        yield expect_same(f"moving blocks in interval {block}", moving, list(range(block + 1)))
        ratios = [scale / scales[block] for scale in scales[:block]]
        yield expect_equal(f"scales of finished blocks {block}", [*ratios, 0.1], 0.1, 1e-9)
        yield expect_same("scales outside the blocks", (before, after), (0.0, 0.0))


CHECK = CompressionCheck(
    "C6",
    "mobile",
    "Does a narrow encoder learn more from a wide one, block by block, than from as much text?",
    "Sun et al. 2020",
    run,
)
