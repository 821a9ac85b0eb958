"""Several tasks at once: one encoder for all, a head and a folder for each."""

from pathlib import Path

import pytest
import torch

from bertwright.errors import UserError
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import load_fine_tuned
from bertwright.tasks.finetuning import finetune_together
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, numbers, options, tagged

SETTINGS = {"rate": 3e-3, "dropout": 0.0, "decay": 0.0, "compile": False, "batch": 8}

SEVERAL = [
    TaskData(table_task("ages", Columns()), train=classes(), dev=classes()),
    TaskData(tagging_task("things"), train=tagged(), dev=tagged()),
    TaskData(table_task("kinds", Columns(), "number"), train=numbers(), dev=numbers()),
]


def test_all_are_learned_with_one_encoder(pretrained, tmp_path: Path) -> None:
    out = tmp_path / "own"
    found = finetune_together(pretrained(), SEVERAL, out=out, epochs=20, **SETTINGS)
    scores = found.best.report.scores
    assert {name: max(of.values()) > 0.8 for name, of in scores.items()} == dict.fromkeys(
        ("ages", "things", "kinds"), True
    )
    models = [load_fine_tuned(out / name) for name in scores]
    encoders = [dict(model.net.encoder.named_parameters()) for model in models]
    assert all(
        torch.equal(encoders[0][name], other[name])
        for other in encoders[1:]
        for name in encoders[0]
    )
    assert found.as_dict()["metric"] == "mean"
    assert "ages.accuracy" in found.as_dict()["metrics"]


def test_a_task_beside_others_is_scored_as_alone(pretrained) -> None:
    found = finetune_together(pretrained(), SEVERAL[:2], epochs=1, **SETTINGS)
    for model, data in zip(found.best.models, SEVERAL, strict=False):
        scores = model.task.score(data.dev, model.predict(data.dev))
        assert scores == pytest.approx(found.best.report.scores[model.task.name])


def test_two_of_one_name_are_refused(pretrained) -> None:
    with pytest.raises(UserError, match="two tasks are named 'ages'"):
        finetune_together(pretrained(), [SEVERAL[0], SEVERAL[0]], **SETTINGS)


def test_options_stand_beside_classes(pretrained) -> None:
    several = [SEVERAL[0], TaskData(find_task("codah"), train=options(), dev=options())]
    found = finetune_together(pretrained(), several, epochs=2, share_power=0.5, **SETTINGS)
    assert set(found.best.report.scores) == {"ages", "codah"}
