"""What is lost without a layer is what is lost where it is taken out, and what loses least goes."""

import numpy as np
import pytest

from bertwright.compression.beginning import beginning
from bertwright.compression.method import Method
from bertwright.compression.needed_layers import losses_without_layers, needed_layers
from bertwright.compression.quantisation.losses import asked, sums_and_counts
from bertwright.compression.students import with_layers
from bertwright.compression.transfer import TransferSets
from bertwright.errors import UserError
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task_model import TaskModel
from small_encoders import Pretrained
from small_tasks import classes

LAYERS = 3


@pytest.fixture
def teacher(pretrained: Pretrained) -> FineTuned:
    model = pretrained("bert", f"encoder.depth.layers={LAYERS}")
    task, examples = table_task("age", Columns()), classes()
    settings = {"rate": 3e-3, "epochs": 2, "batch": 8, "compile": False, "precision": "float32"}
    return finetune(model, task, train=examples, dev=examples, **settings).model


def without(model: FineTuned, layer: int) -> FineTuned:
    left = with_layers(model.model, [n for n in range(LAYERS) if n != layer])
    net = TaskModel(left.recipe, left.vocabulary_size, model.net.plan)
    net.encoder = left.encoder
    net.head.load_state_dict(model.net.head.state_dict())
    return FineTuned(net, model.tokenizer, model.task, model.maker.length, "float32")


def test_what_is_lost_is_lost_by_the_model_that_is_left(teacher: FineTuned) -> None:
    examples = classes()
    losses = losses_without_layers(teacher, examples)
    for layer, loss in enumerate(losses):
        sums, counts = sums_and_counts(asked(without(teacher, layer), examples, 8))
        assert loss == pytest.approx(sums.sum() / counts.sum(), rel=1e-5)
    assert len(set(losses)) == LAYERS
    order = np.argsort(losses).tolist()
    assert needed_layers(teacher, examples, 1) == order[-1:]
    assert needed_layers(teacher, examples, 2) == sorted(order[-2:])


def test_a_student_has_the_layers_that_are_needed(
    teacher: FineTuned, pretrained: Pretrained, tmp_path
) -> None:
    method = Method.load("layer-drop-needed")
    sets = TransferSets(teacher, classes(), None, tmp_path)
    student = beginning(teacher, None, 1, method, sets)(0)
    (layer,) = needed_layers(teacher, classes(), 1)
    own = with_layers(teacher.model, [layer]).state_dict()
    assert all(own[name].equal(found) for name, found in student.model.state_dict().items())
    with pytest.raises(UserError, match="and the student has 2"):
        beginning(teacher, pretrained(), 1, method, sets)
