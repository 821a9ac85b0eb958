"""A student with narrow blocks that learns block after block from a teacher with wide ones."""

from pathlib import Path

import torch

from bertwright.analysis.planted.expecting import equal, same
from bertwright.compression.lessons.lessons import Lessons
from bertwright.encoder.bottleneck import Narrowed
from bertwright.encoder.norms import NoNorm, NoNormChoice
from bertwright.model.folder import load_model
from bertwright.model.text_model import TextModel
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.training.metrics_file import read_metrics

POST = "encoder.norm.placement=post"
TEACHER = (
    POST,
    "encoder.bottleneck.width=128",
    "encoder.embeddings.width=16",
    "encoder.mixer.head_width=32",
)
STUDENT = (
    POST,
    "encoder.bottleneck.width=16",
    "encoder.embeddings.width=16",
    "encoder.mixer.head_width=4",
)
LAYERS = 4


def run(ground: Ground) -> Came:
    """A student that is taught block by block, and one that reads for as long."""
    yield from _affine()
    yield from _turns()
    recipe = ground.recipe(*TEACHER, steps=ground.size.teacher_steps, system="ib-bert")
    teacher = TextModel(*load_model(ground.learned("c6-teacher", recipe).path), "float32")
    lessons = Lessons.load("mobile-progressive").of(teacher)
    losses: dict[str, list[float]] = {"taught": [], "alone": []}
    fallen: dict[int, list[float]] = {}
    for seed in ground.seeds:
        recipe = ground.recipe(*STUDENT, seed=seed, system="mobilebert")
        for name, found in losses.items():
            who = lessons if name == "taught" else None
            learned = ground.learned(f"c6-{name}-{seed}", recipe, teacher=who)
            found.append(learned.figures["masked_loss"])
        for block, apart in _by_turn(ground.folder / f"c6-taught-{seed}" / "metrics.jsonl").items():
            fallen.setdefault(block, []).append(apart[-1] / apart[0])
    yield Measured("masked loss, taught block by block", losses["taught"], "alone", losses["alone"])
    for block, shares in fallen.items():
        yield Measured(f"states of block {block} apart, end of its turn over its beginning", shares)


def _by_turn(file: Path) -> dict[int, list[float]]:
    """How far the states of each block are from its teacher's in its turn, as far as a run has told
    it more than once."""
    stages = Lessons.load("mobile-progressive").stages
    turn = stages[0].share / sum(stage.share for stage in stages) / LAYERS
    found: dict[int, list[float]] = {}
    for line in read_metrics(file):
        block = int(line["progress"] / turn)
        if block < LAYERS and "states_loss" in line:
            found.setdefault(block, []).append(line["states_loss"])
    return {block: apart for block, apart in found.items() if len(apart) > 1}


def _affine() -> Came:
    """A norm that normalises nothing is a gain and a bias, and so a part of the matrix before."""
    draw = torch.Generator().manual_seed(0)
    way, x = Narrowed(12, 8, NoNormChoice()), torch.randn(6, 12, generator=draw)
    norm = way.norm
    assert isinstance(norm, NoNorm), "it was asked for"
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(8, generator=draw))
        found, inner = way(x), way.dense(x)
        yield equal("a norm of nothing", found.numpy(), inner * norm.weight + norm.bias, 0)
        way.fold()
        yield equal("folded into the matrix before it", way(x).numpy(), found, 1e-5)


def _turns() -> Came:
    """No block moves before its turn, and little behind it."""
    stage = Lessons.load("mobile-progressive").stages[0]
    assert stage.turns is not None, "its blocks take turns"
    for block in range(LAYERS):
        middle = (block + 0.5) / LAYERS
        before, *rates, behind = stage.turns.rates(LAYERS, middle, middle)
        moving = [number for number, rate in enumerate(rates) if rate > 0]
        yield same(f"blocks that move in turn {block}", moving, list(range(block + 1)))
        shares = [rate / rates[block] for rate in rates[:block]]
        yield equal(f"of its rate, those behind turn {block}", [*shares, 0.1], 0.1, 1e-9)
        yield same("what stands around the blocks", (before, behind), (0.0, 0.0))


ROW = Row(
    "C6",
    "mobile",
    "Does a narrow encoder learn more from a wide one block by block than from as much text?",
    "Sun et al. 2020",
    run,
)
