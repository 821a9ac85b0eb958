"""Ways to adapt in one table: every cell, once, and what stands against what."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bertwright.bench.adapting import comparing
from bertwright.bench.adapting.plan import Plan
from bertwright.errors import UserError

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "adaptation"


def stated(task_folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "question": "Which is better?",
        "encoders": {"own": str(task_folder / "model")},
        "tasks": {
            "first": {"task": "sst-2", "data": str(task_folder)},
            "second": {"task": "sst-2", "data": str(task_folder), "most": 16},
        },
        "ways": {
            "all": {},
            "head": {"settings": {"adaptation": "frozen"}},
            "both": {"beside": ["first", "second"], "tasks": ["first"]},
        },
        "settings": {"epochs": 1, "compile": False, "calibrate": False},
        "against": "all",
        "seeds": 2,
        **changes,
    }


def test_every_cell_has_its_seeds_and_is_not_found_twice(
    task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan.model_validate(stated(task_folder))
    rows = comparing.compare(plan, tmp_path, lambda line: None)
    cells = [(row["task"], row["way"]) for row in rows]
    assert cells == [
        ("first", "all"),
        ("first", "head"),
        ("first", "both"),
        ("second", "all"),
        ("second", "head"),
    ]
    assert all(len(row["scores"]) == 2 for row in rows)
    assert [row["difference"] is None for row in rows] == [w == "all" for _, w in cells]
    assert rows[1]["trained"] < rows[0]["trained"]

    def refuse(*_: object) -> None:
        raise AssertionError("it was found before")

    monkeypatch.setattr(comparing, "run", refuse)
    assert comparing.compare(plan, tmp_path, lambda line: None) == rows


def test_two_runs_at_once_find_as_much(task_folder: Path, tmp_path: Path) -> None:
    plan = Plan.model_validate(stated(task_folder, seeds=1))
    said: list[str] = []
    rows = comparing.compare(plan, tmp_path, said.append, 2)
    assert len(said) == len(rows) == 5
    assert comparing.compare(plan, tmp_path, said.append, 2) == rows
    assert len(said) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"against": "al"}, "against: there is no 'al': did you mean 'all'"),
        ({"ways": {"all": {"beside": ["third"]}}}, "beside: there is no 'third'"),
        (
            {"ways": {"all": {"settings": {"epoch": 1}}}},
            "has no key 'epoch': did you mean 'epochs'",
        ),
    ],
)
def test_a_wrong_plan_is_named(
    task_folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(stated(task_folder, **changes)))
    with pytest.raises(UserError, match=message):
        Plan.load(file)


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_can_be_read(example: Path) -> None:
    plan = Plan.load(example)
    assert list(comparing.places(plan))
