"""A narrow student that learns the scores and the states of its teacher through a map."""

from typing import Any

import torch
from torch import nn

from bertwright.analysis.planted.expecting import Expected, above, equal, same
from bertwright.compression.distillation import Distillation
from bertwright.compression.lessons.lessons import Lessons
from bertwright.compression.method import Method
from bertwright.compression.signals import Heard, Signal, States
from bertwright.compression.signals.states import OfStates
from bertwright.model.folder import load_model
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.schedules import Constant
from bertwright.studies.compression_checks.first_steps import first_step
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "inference"
NARROW = ("encoder.width=32", "encoder.mixer.head_width=8", "encoder.depth.layers=2")
CHANGED = {"augmentation": {"kind": "masked", "copies": 3}}
STATES: dict[str, Any] = {"kind": "states", "layers": {"embeddings": True}}


def run(ground: Ground) -> Came:
    """Taught in reading and in the task, with attention and without, and on changed texts; and left
    alone."""
    teacher = ground.tuned(TASK)
    yield from _identities(ground)
    yield from _map(ground)
    tiny = Method.load("tiny-task").model_dump(mode="json", by_alias=True)
    inside, outputs = tiny["stages"]
    methods = {
        "with attention": "tiny-task",
        "without": ground.method(
            "c5-states", {"stages": [inside | {"signals": [STATES]}, outputs]}
        ),
        "changed texts": ground.method(
            "c5-changed", {"stages": [inside | CHANGED, outputs | CHANGED]}
        ),
    }
    general = Lessons.load("tiny-general").of(ground.pretrained)
    scores: dict[str, list[float]] = {name: [] for name in methods}
    others: list[float] = []
    for seed in ground.seeds:
        recipe = ground.recipe(*NARROW, seed=seed)
        folder = ground.learned(f"c5-{seed}", recipe, teacher=general).path
        student = TextModel(*load_model(folder), "float32")
        for name, method in methods.items():
            found = ground.compressed(
                teacher,
                method,
                [seed],
                student=student,
                namer=ground.pretrained,
                alone=name == "without",
            )
            scores[name] += found.scores
            others += found.alone
    for name, own in scores.items():
        yield Measured(f"accuracy, {name}", own, "labels alone", others)
    own = scores["with attention"]
    yield Measured("accuracy, with attention", own, "without", scores["without"])
    yield Measured("accuracy, changed texts", scores["changed texts"], "with attention", own)


def _identities(ground: Ground) -> Came:
    """A student that is its teacher, with no map and with one that changes nothing."""
    teacher = ground.tuned(TASK)
    stage = Method.load("tiny-task").stages[0]
    told = Distillation(teacher, stage.signals, Constant(value=0.0))
    examples = ground.examples(TASK)[:16]
    report = first_step(teacher, teacher.task, examples, told, **ground.settings())
    for name in ("attention", "states"):
        yield equal(f"{name} of a student that is its teacher", report.losses[name], 0, 1e-6)
    yield equal("the gradient of both", report.norm, 0, 1e-4)
    yield _through_the_identity()


def _through_the_identity() -> Expected:
    """States against themselves, through a map that changes nothing."""
    same_again = nn.Linear(8, 8)
    with torch.no_grad():
        same_again.weight.copy_(torch.eye(8))
        same_again.bias.zero_()
    comparison = OfStates(States(), "together", [(1, 1)], [same_again])
    states = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    heard = Heard(
        torch.zeros(1, 1),
        torch.zeros(1, 1),
        None,
        None,
        dict.fromkeys(comparison.sites, states),
        dict.fromkeys(comparison.other_sites, states),
        torch.ones(2, 5, dtype=torch.bool),
        0.0,
    )
    return equal("states through a map that changes nothing", comparison(heard).item(), 0, 1e-9)


def _map(ground: Ground) -> Came:
    """It learns, and is no part of the student that is kept."""
    teacher = ground.tuned(TASK)
    drawn = Model.build(ground.recipe(*NARROW), ground.data.tokenizer.size)
    student = TextModel(drawn, ground.data.tokenizer, "float32")
    told = Distillation(teacher, [Signal.choose(STATES)], Constant(value=0.0))
    found = ground.finetuned(student, TASK, teacher=told, epochs=1)
    teaching = found.training.teaching
    assert teaching is not None, "a teacher was given"
    learned = [each.detach().clone() for each in teaching.parameters()]
    teaching.begin(0)
    moved = [
        (a - b).abs().max().item() for a, b in zip(learned, teaching.parameters(), strict=True)
    ]
    yield above("how far every part of the map has moved", moved, 1e-6)
    kept = [name for name in found.model.net.state_dict() if "teaching" in name]
    yield same("of the map, what the student keeps", kept, [])


ROW = Row(
    "C5",
    "tiny",
    "Can a student of half the width learn what its teacher looks at, and is that worth it?",
    "Jiao et al. 2020",
    run,
)
