"""Layer importance: the loss without a layer is that of a model without it."""

import numpy as np
import pytest

from bertwright.compression.distillation.transfer import TransferSets
from bertwright.compression.initial_student import student_factory
from bertwright.compression.method import CompressionMethod
from bertwright.compression.pruning.layers import (
    important_layers,
    layer_ablation_losses,
    prune_model_layers,
)
from bertwright.compression.task_loss import example_batches, losses_and_counts
from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task_model import TaskModel
from small_encoders import Pretrained
from small_tasks import classes

LAYERS = 3


@pytest.fixture
def teacher(pretrained: Pretrained) -> FineTunedModel:
    model = pretrained("bert", f"encoder.depth.layers={LAYERS}")
    task, examples = table_task("age", Columns()), classes()
    settings = {
        "learning_rate": 3e-3,
        "epochs": 2,
        "batch_size": 8,
        "compile": False,
        "precision": "float32",
    }
    return finetune(model, task, train=examples, dev=examples, **settings).model


def without_layer(model: FineTunedModel, layer: int) -> FineTunedModel:
    pruned = prune_model_layers(model.model, [n for n in range(LAYERS) if n != layer])
    net = TaskModel(pruned.recipe, pruned.vocab_size, model.task_model.head_spec)
    net.encoder = pruned.encoder
    net.head.load_state_dict(model.task_model.head.state_dict())
    length = model.example_encoder.max_length
    return FineTunedModel(net, model.tokenizer, model.task, length, "float32")


def test_ablation_losses_are_those_of_pruned_models(teacher: FineTunedModel) -> None:
    examples = classes()
    losses = layer_ablation_losses(teacher, examples)
    for layer, loss in enumerate(losses):
        batches = example_batches(without_layer(teacher, layer), examples, 8)
        sums, counts = losses_and_counts(batches)
        assert loss == pytest.approx(sums.sum() / counts.sum(), rel=1e-5)
    assert len(set(losses)) == LAYERS
    order = np.argsort(losses).tolist()
    assert important_layers(teacher, examples, 1) == order[-1:]
    assert important_layers(teacher, examples, 2) == sorted(order[-2:])


def test_a_student_has_the_important_layers(
    teacher: FineTunedModel, pretrained: Pretrained, tmp_path
) -> None:
    method = CompressionMethod.load("layer-drop-needed")
    sets = TransferSets(teacher, classes(), None, tmp_path)
    student = student_factory(teacher, None, 1, method, sets)(0)
    (layer,) = important_layers(teacher, classes(), 1)
    weights = prune_model_layers(teacher.model, [layer]).state_dict()
    assert all(weights[name].equal(w) for name, w in student.model.state_dict().items())
    with pytest.raises(UserError, match="and the student has 2"):
        student_factory(teacher, pretrained(), 1, method, sets)
