"""Comparison of fine-tuning methods: every cell once, and differences from the baseline."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.adaptation import compare as adaptation
from benchmarks.adaptation.plan import AdaptationPlan
from bertwright.core.errors import UserError
from checkout import EXAMPLES

ADAPTATION = EXAMPLES / "adaptation"


def plan_data(task_folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the content of a plan."""
    return {
        "description": "Which is better?",
        "encoders": {"small": str(task_folder / "model")},
        "tasks": {
            "first": {"task": "sst-2", "data": str(task_folder)},
            "second": {"task": "sst-2", "data": str(task_folder), "max_examples": 16},
        },
        "methods": {
            "all": {},
            "head": {"settings": {"adaptation": "frozen"}},
            "both": {"auxiliary_tasks": ["first", "second"], "tasks": ["first"]},
        },
        "settings": {"epochs": 1, "compile": False, "calibrate": False},
        "baseline": "all",
        "seeds": 2,
        **changes,
    }


def test_every_cell_runs_once_for_every_seed(
    task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = AdaptationPlan.model_validate(plan_data(task_folder))
    rows = adaptation.compare(plan, tmp_path, lambda line: None)
    cells = [(row["task"], row["method"]) for row in rows]
    assert cells == [
        ("first", "all"),
        ("first", "head"),
        ("first", "both"),
        ("second", "all"),
        ("second", "head"),
    ]
    assert all(len(row["scores"]) == 2 for row in rows)
    assert [row["difference"] is None for row in rows] == [method == "all" for _, method in cells]
    assert rows[1]["trainable"] < rows[0]["trainable"]

    def refuse(*_: object) -> None:
        raise AssertionError("a run was repeated")

    monkeypatch.setattr(adaptation, "run", refuse)
    assert adaptation.compare(plan, tmp_path, lambda line: None) == rows


@pytest.mark.full
@pytest.mark.usefixtures("preloaded_processes")
def test_parallel_runs_are_all_kept(task_folder: Path, tmp_path: Path) -> None:
    plan = AdaptationPlan.model_validate(plan_data(task_folder, seeds=1))
    lines: list[str] = []
    rows = adaptation.compare(plan, tmp_path, lines.append, 2)
    assert len(lines) == len(rows) == 5
    assert adaptation.compare(plan, tmp_path, lines.append, 2) == rows
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "al"}, "baseline: there is no 'al': did you mean 'all'"),
        (
            {"methods": {"all": {"auxiliary_tasks": ["third"]}}},
            "auxiliary_tasks: there is no 'third'",
        ),
        (
            {"methods": {"all": {"settings": {"epoch": 1}}}},
            "has no key 'epoch': did you mean 'epochs'",
        ),
    ],
)
def test_a_wrong_plan_is_named(
    task_folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(plan_data(task_folder, **changes)))
    with pytest.raises(UserError, match=message):
        AdaptationPlan.load(file)


@pytest.mark.parametrize("example", sorted(ADAPTATION.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_valid(example: Path) -> None:
    plan = AdaptationPlan.load(example)
    assert list(adaptation.table_cells(plan))
