"""Multi-task fine-tuning: one encoder, a head and a folder for each task."""

from pathlib import Path

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import finetune_tasks
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, numbers, options, pairs, tagged

SETTINGS = {
    "learning_rate": 3e-3,
    "dropout": 0.0,
    "weight_decay": 0.0,
    "compile": False,
    "batch_size": 8,
}

SEVERAL = [
    TaskData(table_task("ages", Columns()), train=classes(), dev=classes()),
    TaskData(tagging_task("things"), train=tagged(), dev=tagged()),
    TaskData(table_task("kinds", Columns(), "number"), train=numbers(), dev=numbers()),
]


def test_tasks_share_one_encoder(pretrained, tmp_path: Path) -> None:
    out = tmp_path / "task"
    result = finetune_tasks(pretrained(), SEVERAL, output=out, epochs=20, **SETTINGS)
    scores = result.best.report.scores
    assert {name: max(of.values()) > 0.8 for name, of in scores.items()} == dict.fromkeys(
        ("ages", "things", "kinds"), True
    )
    models = [load_fine_tuned_model(out / name) for name in scores]
    encoders = [dict(model.task_model.encoder.named_parameters()) for model in models]
    assert all(
        torch.equal(encoders[0][name], other[name])
        for other in encoders[1:]
        for name in encoders[0]
    )
    assert result.as_dict()["metric"] == "mean"
    assert "ages.accuracy" in result.as_dict()["metrics"]


def test_multi_task_scores_are_those_of_the_saved_models(pretrained) -> None:
    result = finetune_tasks(pretrained(), SEVERAL[:2], epochs=1, **SETTINGS)
    for model, data in zip(result.best.models, SEVERAL, strict=False):
        scores = model.task.score(data.dev, model.predict(data.dev))
        assert scores == pytest.approx(result.best.report.scores[model.task.name])


def test_duplicate_task_names_are_refused(pretrained) -> None:
    with pytest.raises(UserError, match="two tasks are named 'ages'"):
        finetune_tasks(pretrained(), [SEVERAL[0], SEVERAL[0]], **SETTINGS)


def test_multiple_choice_and_classification_train_together(pretrained) -> None:
    several = [SEVERAL[0], TaskData(find_task("codah"), train=options(), dev=options())]
    result = finetune_tasks(pretrained(), several, epochs=2, task_sampling_power=0.5, **SETTINGS)
    assert set(result.best.report.scores) == {"ages", "codah"}


def test_only_learned_mixes_are_penalised(pretrained) -> None:
    tasks = [
        TaskData(table_task("ages", Columns()), train=classes(), dev=classes()),
        TaskData(table_task("pairs", Columns(pair="pair")), train=pairs(), dev=pairs()),
    ]
    mixed = {"kind": "plain", "layers": "all"}
    result = finetune_tasks(
        pretrained(), tasks, epochs=1, **SETTINGS,
        head={**mixed, "mix": "sum"}, pair_head={**mixed, "mix": "learned", "mix_l2": 0.5},
    )  # fmt: skip
    model = result.run.model
    weights = dict(model.head_of(1).named_parameters())["mix.weights"].detach()
    penalty = float(model.penalty().detach())
    assert penalty == pytest.approx(0.5 * float(weights.square().sum()))
    assert penalty > 0
