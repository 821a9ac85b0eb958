"""TinyBERT: a narrow student learns attention scores and hidden states through a projection."""

from typing import Any

import torch
from torch import nn

from bertwright.compression.distillation.fine_tuning_loss import TeacherTaskDistillation
from bertwright.compression.distillation.losses import (
    DistillationInputs,
    DistillationTermConfig,
    HiddenStateLossConfig,
)
from bertwright.compression.distillation.losses.hidden_states import HiddenStateLoss
from bertwright.compression.distillation.recipe import DistillationRecipe
from bertwright.compression.method import CompressionMethod
from bertwright.core.schedules import ConstantSchedule
from bertwright.models.model import Model
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from experiments.analyses.expecting import ExpectedValue, expect_above, expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, accuracy_claim
from experiments.compressions.first_steps import first_step
from experiments.compressions.toy_models import ToyModels

TASK = "majority"
NARROW = ("encoder.width=32", "encoder.mixer.head_width=8", "encoder.depth.layers=2")
AUGMENTATION = {"augmentation": {"kind": "masked", "num_copies": 3}}
HIDDEN_STATE_LOSS: dict[str, Any] = {"kind": "states", "layers": {"embeddings": True}}


def run(toy: ToyModels) -> CheckResults:
    """Compare methods with and without attention, and with augmented texts."""
    teacher = toy.fine_tuned(TASK)
    yield from _student_equals_teacher(toy)
    yield from _projection_is_not_saved(toy)
    tiny = CompressionMethod.load("tiny-task").model_dump(mode="json", by_alias=True)
    internal, outputs = tiny["stages"]
    states_only = internal | {"losses": [HIDDEN_STATE_LOSS]}
    methods = {
        "with attention": "tiny-task",
        "without": toy.write_method("c5-states", {"stages": [states_only, outputs]}),
        "augmented": toy.write_method(
            "c5-augmented", {"stages": [internal | AUGMENTATION, outputs | AUGMENTATION]}
        ),
    }
    general = DistillationRecipe.load("tiny-general").distillation(toy.pretrained)
    scores: dict[str, list[float]] = {name: [] for name in methods}
    baseline: list[float] = []
    for seed in toy.seeds:
        recipe = toy.recipe(*NARROW, seed=seed)
        folder = toy.pretrain(f"c5-{seed}", recipe, distillation=general).folder
        student = TextModel(*load_model(folder), "float32")
        for name, method in methods.items():
            result = toy.compress(
                teacher,
                method,
                [seed],
                student=student,
                augmenter=toy.pretrained,
                task_data=toy.task_data(TASK, toy.size.examples // 2),
                with_baseline=name == "without",
            )
            scores[name] += result.scores
            baseline += result.baseline_scores
    attention = scores["with attention"]
    comparisons = {
        "with attention": {"labels only": baseline, "without": scores["without"]},
        "augmented": {"with attention": attention},
    }
    for name, baselines in comparisons.items():
        for baseline_name, baseline_scores in baselines.items():
            yield accuracy_claim(name, scores[name], baseline_name, baseline_scores)


def _student_equals_teacher(toy: ToyModels) -> CheckResults:
    """Check that a student equal to its teacher has no loss, also with an identity projection."""
    teacher = toy.fine_tuned(TASK)
    stage = CompressionMethod.load("tiny-task").stages[0]
    distillation = TeacherTaskDistillation(teacher, stage.losses, ConstantSchedule(value=0.0))
    examples = toy.examples(TASK)[:16]
    report = first_step(teacher, teacher.task, examples, distillation, **toy.settings())
    for name in ("attention", "states"):
        yield expect_equal(
            f"{name} of a student equal to its teacher", report.losses[name], 0, 1e-6
        )
    yield expect_equal("the gradient of both", report.gradient_norm, 0, 1e-4)
    yield _identity_projection()


def _identity_projection() -> ExpectedValue:
    """Check that equal states have no distance through an identity projection."""
    projection = nn.Linear(8, 8)
    with torch.no_grad():
        projection.weight.copy_(torch.eye(8))
        projection.bias.zero_()
    loss = HiddenStateLoss(HiddenStateLossConfig(), [(1, 1)], [projection])
    states = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    inputs = DistillationInputs(
        torch.zeros(1, 1),
        torch.zeros(1, 1),
        None,
        None,
        dict.fromkeys(loss.student_taps, states),
        dict.fromkeys(loss.teacher_taps, states),
        torch.ones(2, 5, dtype=torch.bool),
        0.0,
    )
    return expect_equal("states through an identity projection", loss(inputs).item(), 0, 1e-9)


def _projection_is_not_saved(toy: ToyModels) -> CheckResults:
    """Check that the projection is trained, and not saved with the student."""
    teacher = toy.fine_tuned(TASK)
    untrained = Model.build(toy.recipe(*NARROW), toy.data.tokenizer.vocab_size)
    student = TextModel(untrained, toy.data.tokenizer, "float32")
    distillation = TeacherTaskDistillation(
        teacher, [DistillationTermConfig.parse(HIDDEN_STATE_LOSS)], ConstantSchedule(value=0.0)
    )
    result = toy.finetune(student, TASK, distillation=distillation, epochs=1)
    loss = result.run.distillation_loss
    assert loss is not None
    trained = [parameter.detach().clone() for parameter in loss.parameters()]
    loss.init(0)
    changes = [(a - b).abs().max().item() for a, b in zip(trained, loss.parameters(), strict=True)]
    yield expect_above("change of every parameter of the projection", changes, 1e-6)
    state = result.model.task_model.state_dict()
    saved = [name for name in state if "distillation_loss" in name]
    yield expect_same("parameters of the projection in the student", saved, [])


CHECK = CompressionCheck(
    "C5",
    "tiny",
    "Can a student of half the width learn its teacher's attention, and is that worth it?",
    "Jiao et al. 2020",
    run,
)
