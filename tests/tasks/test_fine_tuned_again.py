"""A fine-tuned model is fine-tuned again: what the next task can use of its head is not lost."""

from itertools import product
from typing import Any

import pytest
import torch

from bertwright.tasks import learning_curve as curves
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.tables import Columns
from recipes_at_toy_size import SYSTEMS, shaken
from small_tasks import classes, numbers, pairs, tagged

TASKS = {
    "class": (table_task("colours", Columns()), classes()[:12]),
    "number": (table_task("colours", Columns(), "number"), numbers()[:12]),
    "tags": (tagging_task("colours"), tagged()[:12]),
}
OTHER = table_task("other", Columns("a", "b"))

UNTRAINED = {"epochs": 0, "calibrate": False, "precision": "float32"}

MADE = ["albert", "electra", "modern"]
"""Systems whose usual heads are of three kinds."""

STATED = [
    {"kind": "dense", "activation": "relu"},
    {"kind": "pooler", "read": "mean"},
    {"kind": "dense", "layers": "last-2", "mix": "learned"},
    {"kind": "plain", "read": "last-max-mean"},
]


def tuned(source, task, examples, head: Any = None) -> FineTuned:
    """A model whose head is as no head begins."""
    found = finetune(source, task, train=examples, dev=examples, head=head, **UNTRAINED)
    shaken(found.model.net.head, 0.1)
    return found.model


def again(model: FineTuned, task, examples, **settings: Any) -> FineTuned:
    return finetune(model, task, train=examples, dev=examples, **UNTRAINED, **settings).model


def outputs(model: FineTuned, examples) -> torch.Tensor:
    rows = model.answering.rows(model.maker, examples)
    return torch.cat([torch.from_numpy(found) for found in model.outputs(rows)])


@pytest.mark.parametrize(
    ("system", "kind"), [*product(SYSTEMS, ["class"]), *product(MADE, ["number", "tags"])]
)
def test_the_same_task_again_is_answered_as_before(pretrained, system: str, kind: str) -> None:
    task, examples = TASKS[kind]
    before = tuned(pretrained(system), task, examples)
    after = again(before, task, examples)
    assert after.net.recipe == before.net.recipe
    assert torch.allclose(outputs(after, examples), outputs(before, examples), 1e-4, 1e-4)


@pytest.mark.parametrize("head", [None, STATED[2]], ids=str)
def test_a_curve_of_a_model_that_goes_on_has_one_head(pretrained, monkeypatch, head: Any) -> None:
    before, made = tuned(pretrained("electra"), *TASKS["class"], head), []

    def noted(*words: Any, **settings: Any) -> FineTuneResult:
        found = finetune(*words, **settings)
        made.append((found.model.net.choice, found.settings.rate_for(found.model.net.recipe)))
        return found

    monkeypatch.setattr(curves, "finetune", noted)
    task, examples = TASKS["class"]
    data = TaskData(task, train=examples, dev=examples)
    curves.learning_curve(before, data, [8], settings={"epochs": 1, "calibrate": False})
    assert len(made) == 2
    assert set(made) == {(before.net.choice, made[0][1])}


@pytest.mark.parametrize("way", ["full", "frozen"])
@pytest.mark.parametrize("head", STATED, ids=str)
def test_a_head_that_was_stated_once_goes_on(pretrained, head: Any, way: str) -> None:
    before = tuned(pretrained(), *TASKS["class"], head)
    same = again(before, *TASKS["class"], adaptation=way)
    assert torch.allclose(outputs(same, classes()), outputs(before, classes()), atol=1e-3)
    assert_goes_on(before, again(before, OTHER, pairs(), adaptation=way))


@pytest.mark.parametrize("system", MADE)
def test_another_task_begins_with_the_first_part_of_the_head(pretrained, system: str) -> None:
    before = tuned(pretrained(system), *TASKS["class"])
    assert before.net.head.enter.state_dict()
    assert_goes_on(before, again(before, OTHER, pairs()))


def test_a_head_of_another_kind_knows_nothing(pretrained) -> None:
    before = tuned(pretrained(), *TASKS["class"], "dense")
    after = again(before, *TASKS["class"], head={"kind": "dense", "activation": "gelu"})
    drawn = again(before, OTHER, pairs(), head={"kind": "dense", "activation": "gelu"})
    assert torch.equal(after.net.head.enter.dense.weight, drawn.net.head.enter.dense.weight)


def assert_goes_on(before: FineTuned, after: FineTuned) -> None:
    """A head is of the same kind, and its first part is that of the one before."""
    assert after.net.choice == before.net.choice
    known = before.net.head.enter.state_dict()
    for name, tensor in after.net.head.enter.state_dict().items():
        assert torch.allclose(tensor, known[name], atol=1e-3)
