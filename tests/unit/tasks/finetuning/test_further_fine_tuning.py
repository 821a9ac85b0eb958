"""Further fine-tuning: the next task is initialised from the head."""

from itertools import product
from typing import Any

import pytest
import torch

from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.tuning import learning_curve as curves
from small_tasks import classes, numbers, pairs, tagged
from toy_recipes import SYSTEMS, shaken

TASKS = {
    "class": (table_task("colours", Columns()), classes()[:12]),
    "number": (table_task("colours", Columns(), "number"), numbers()[:12]),
    "tags": (tagging_task("colours"), tagged()[:12]),
}
OTHER = table_task("other", Columns("a", "b"))

UNTRAINED = {"epochs": 0, "calibrate": False, "precision": "float32"}

HEAD_SYSTEMS = ["albert", "electra", "modern"]
"""Systems whose default heads are of three kinds."""

HEADS = [
    {"kind": "dense", "activation": "relu"},
    {"kind": "pooler", "pooling": "mean"},
    {"kind": "dense", "layers": "last-2", "mix": "learned"},
    {"kind": "plain", "pooling": "last-max-mean"},
]


def tuned(source, task, examples, head: Any = None) -> FineTunedModel:
    """Return a model with a random head."""
    result = finetune(source, task, train=examples, dev=examples, head=head, **UNTRAINED)
    shaken(result.model.task_model.head, 0.1)
    return result.model


def again(model: FineTunedModel, task, examples, **settings: Any) -> FineTunedModel:
    return finetune(model, task, train=examples, dev=examples, **UNTRAINED, **settings).model


def outputs(model: FineTunedModel, examples) -> torch.Tensor:
    sequences = model.output_decoder.encode(model.example_encoder, examples)
    return torch.cat([torch.from_numpy(output) for output in model.head_outputs(sequences)])


@pytest.mark.parametrize(
    ("system", "kind"), [*product(SYSTEMS, ["class"]), *product(HEAD_SYSTEMS, ["number", "tags"])]
)
def test_reloaded_head_of_the_same_task_predicts_the_same(
    pretrained, system: str, kind: str
) -> None:
    task, examples = TASKS[kind]
    before = tuned(pretrained(system), task, examples)
    after = again(before, task, examples)
    assert after.task_model.recipe == before.task_model.recipe
    assert torch.allclose(outputs(after, examples), outputs(before, examples), 1e-4, 1e-4)


@pytest.mark.parametrize("head", [None, HEADS[2]], ids=str)
def test_learning_curve_of_a_fine_tuned_model_has_one_head(
    pretrained, monkeypatch, head: Any
) -> None:
    before, runs = tuned(pretrained("electra"), *TASKS["class"], head), []

    def noted(*args: Any, **settings: Any) -> FineTuningResult:
        result = finetune(*args, **settings)
        runs.append(
            (
                result.model.task_model.head_config,
                result.run.config.learning_rate_for(result.model.task_model.recipe),
            )
        )
        return result

    monkeypatch.setattr(curves, "finetune", noted)
    task, examples = TASKS["class"]
    data = TaskData(task, train=examples, dev=examples)
    curves.compute_learning_curve(before, data, [8], settings={"epochs": 1, "calibrate": False})
    assert len(runs) == 2
    assert set(runs) == {(before.task_model.head_config, runs[0][1])}


@pytest.mark.parametrize("adaptation", ["full", "frozen"])
@pytest.mark.parametrize("head", HEADS, ids=str)
def test_configured_head_is_kept_in_further_fine_tuning(
    pretrained, head: Any, adaptation: str
) -> None:
    before = tuned(pretrained(), *TASKS["class"], head)
    same = again(before, *TASKS["class"], adaptation=adaptation)
    assert torch.allclose(outputs(same, classes()), outputs(before, classes()), atol=1e-3)
    assert_warm_started(before, again(before, OTHER, pairs(), adaptation=adaptation))


@pytest.mark.parametrize("system", HEAD_SYSTEMS)
def test_another_task_is_warm_started_with_the_trunk(pretrained, system: str) -> None:
    before = tuned(pretrained(system), *TASKS["class"])
    assert before.task_model.head.trunk.state_dict()
    assert_warm_started(before, again(before, OTHER, pairs()))


def test_head_of_another_kind_is_not_warm_started(pretrained) -> None:
    before = tuned(pretrained(), *TASKS["class"], "dense")
    after = again(before, *TASKS["class"], head={"kind": "dense", "activation": "gelu"})
    drawn = again(before, OTHER, pairs(), head={"kind": "dense", "activation": "gelu"})
    assert torch.equal(
        after.task_model.head.trunk.dense.weight, drawn.task_model.head.trunk.dense.weight
    )


def assert_warm_started(before: FineTunedModel, after: FineTunedModel) -> None:
    """Assert that a head has the kind and the trunk of another one."""
    assert after.task_model.head_config == before.task_model.head_config
    known = before.task_model.head.trunk.state_dict()
    for name, tensor in after.task_model.head.trunk.state_dict().items():
        assert torch.allclose(tensor, known[name], atol=1e-3)
