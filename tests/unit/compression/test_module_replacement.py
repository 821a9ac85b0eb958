"""Module replacement: teacher blocks run at random in training, and never afterwards."""

import numpy as np
import pytest
import torch

from bertwright.compression.module_replacement import (
    ModuleReplacement,
    ReplaceableLayerStack,
    _ReplacementSchedule,
    require_divisible_layers,
)
from bertwright.compression.pruning.layers import prune_layers
from bertwright.core.errors import UserError
from bertwright.core.schedules import ConstantSchedule, Schedule
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.training.clock import Progress
from small_tasks import classes, numbers

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
QUICK = {"learning_rate": 3e-3, "dropout": 0.0, "compile": False, "batch_size": 8, "epochs": 1}


@pytest.fixture
def predecessor(pretrained) -> FineTunedModel:
    model = pretrained("bert", "encoder.depth.layers=4")
    return finetune(model, CLASSES, train=classes(), dev=classes(), **QUICK).model


@pytest.mark.parametrize("positions", [None, torch.tensor([0, 9])])
@pytest.mark.processor
def test_the_layer_stack_is_the_student_or_the_teacher(
    predecessor: FineTunedModel, positions
) -> None:
    student = prune_layers(predecessor, range(2))
    encoder, teacher = student.model.encoder, predecessor.task_model.encoder
    token_ids = torch.randint(5, 40, (3, 8), generator=torch.Generator().manual_seed(0))
    expected = {
        1.0: encoder(token_ids, output_positions=positions),
        0.0: teacher(token_ids, output_positions=positions),
    }
    rng = DropoutRng.for_step(0, 0, 0, torch.device("cpu"))
    for probability, states in expected.items():
        encoder.layer_stack = ReplaceableLayerStack(list(teacher.blocks), 2, probability)
        training = encoder(token_ids, dropout_rng=rng, output_positions=positions)
        assert torch.equal(training, states)
        assert torch.equal(encoder(token_ids, output_positions=positions), expected[1.0])


@pytest.mark.processor
def test_blocks_are_replaced_with_the_given_probability(predecessor: FineTunedModel) -> None:
    student = prune_layers(predecessor, range(2))
    encoder, runs = student.model.encoder, []
    for block in encoder.blocks:
        block.register_forward_hook(lambda *_: runs.append(1))
    encoder.layer_stack = ReplaceableLayerStack(list(predecessor.task_model.encoder.blocks), 2, 0.3)
    for step in range(500):
        rng = DropoutRng.for_step(0, step, 0, torch.device("cpu"))
        encoder(torch.tensor([[5, 6]]), dropout_rng=rng)
    deviation = np.sqrt(0.3 * 0.7 / 1000)
    assert abs(len(runs) / 1000 - 0.3) < 4 * deviation


@pytest.mark.parametrize(("task", "examples"), [(CLASSES, classes()), (NUMBERS, numbers())])
def test_only_student_blocks_are_trained(pretrained, task, examples) -> None:
    model = pretrained("bert", "encoder.depth.layers=4")
    data = {"train": examples, "dev": examples}
    predecessor = finetune(model, task, **data, **QUICK).model
    before = {name: tensor.clone() for name, tensor in predecessor.task_model.state_dict().items()}
    replacement = ModuleReplacement(
        predecessor, Schedule.parse({"kind": "linear", "from": 0.3, "to": 1})
    )
    student = prune_layers(predecessor, range(2))
    result = finetune(student, task, **data, distillation=replacement, precision="float32", **QUICK)
    assert all(torch.equal(t, before[n]) for n, t in predecessor.task_model.state_dict().items())
    initial = student.model.state_dict()
    for name, tensor in result.model.task_model.state_dict().items():
        if name.startswith("encoder.blocks."):
            assert not torch.equal(tensor, initial[name]) or not tensor.any(), name
        else:
            torch.testing.assert_close(tensor, before[name])
    assert 0 < result.run.trained_fraction() < 1


def test_the_probability_is_that_of_the_schedule_within_0_and_1() -> None:
    stack = ReplaceableLayerStack([torch.nn.Identity()] * 4, 2)
    schedule = Schedule.parse({"kind": "linear", "from": -0.5, "to": 1.5})
    callback = _ReplacementSchedule(stack, schedule)
    for fraction, probability in [(0.0, 0.0), (0.375, 0.25), (0.625, 0.75), (1.0, 1.0)]:
        callback.before_step(Progress(0, fraction))
        assert stack.probability == probability
    assert len(stack.teacher_blocks) == 4


def test_impossible_replacements_are_refused(pretrained, predecessor: FineTunedModel) -> None:
    replacement = ModuleReplacement(predecessor, ConstantSchedule(value=0.5))
    with pytest.raises(UserError, match="4 blocks cannot be divided by 3"):
        require_divisible_layers(4, 3)
    with pytest.raises(UserError, match="a plain stack of blocks"):
        finetune(
            pretrained("universal-transformer"),
            CLASSES,
            train=classes(),
            dev=classes(),
            distillation=replacement,
            **QUICK,
        )
