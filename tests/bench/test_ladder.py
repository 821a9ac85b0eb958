"""Ways to make a model small in one table: every run, once, and what each form comes to."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bertwright.bench.ladder import climbing, making
from bertwright.bench.ladder.climbing import climb
from bertwright.bench.ladder.overview import BATCH, LENGTH, overview
from bertwright.bench.ladder.plan import Plan
from bertwright.errors import UserError

LADDER = Path(__file__).parents[2] / "docs" / "examples" / "compression" / "ladder.yaml"


def stated(task_folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "question": "What is lost?",
        "encoder": str(task_folder / "model"),
        "tasks": {
            "first": {"task": "sst-2", "data": str(task_folder)},
            "second": {"task": "sst-2", "data": str(task_folder), "most": 16},
        },
        "settings": {"epochs": 1, "compile": False, "calibrate": False},
        "base": "whole",
        "ways": {
            "whole": {"forms": ["float32", "bf16"]},
            "half": {
                "method": "output-distillation",
                "layers": 1,
                "alone": True,
                "settings": {"epochs": 1, "compile": False},
                "trimmed": True,
                "forms": ["float32", "graph"],
                "tasks": ["first"],
            },
        },
        "seeds": 2,
        **changes,
    }


def quietly(_: str) -> None:
    """Say nothing."""


def test_every_form_is_scored_weighed_and_timed_once(
    task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, models = Plan.model_validate(stated(task_folder, timed=["first"])), tmp_path / "models"
    monkeypatch.setattr(climbing, "SHAPES", ((1, 8, 1),))
    rows = climb(plan, tmp_path, models, ["scores", "times"], 1, quietly)
    whole, _, half, graph, second, _ = rows
    assert [(r["task"], r["way"], r["form"]) for r in rows] == [
        ("first", "whole", "float32"),
        ("first", "whole", "bf16"),
        ("first", "half", "float32"),
        ("first", "half", "graph"),
        ("second", "whole", "float32"),
        ("second", "whole", "bf16"),
    ]
    assert whole["kept"] == 100
    assert whole["smaller"] == whole["faster_1x8"] == 1
    assert "faster_1x8" not in second
    assert not [folder for folder in models.iterdir() if folder.name.startswith("second-whole")]
    assert half["scores"] == graph["scores"]
    assert whole["over_alone"] is None
    assert half["smaller"] > 1
    assert half["parameters"] < whole["parameters"]
    assert (whole["layers"], half["layers"]) == (2, 1)
    assert half["over_alone"] is not None

    def refuse(*_: object) -> None:
        raise AssertionError("it was found before")

    monkeypatch.setattr(making.Maker, "made", refuse)
    monkeypatch.setattr(making, "load", refuse)
    monkeypatch.setattr(climbing, "seconds_in_turns", refuse)
    assert climb(plan, tmp_path, models, ["scores", "times"], 1, quietly) == rows
    assert climb(plan, tmp_path, models, [], 1, quietly) == rows


def test_models_that_are_gone_are_not_timed(task_folder: Path, tmp_path: Path) -> None:
    ways = {"whole": {}}
    plan = Plan.model_validate(stated(task_folder, ways=ways, seeds=1))
    climb(plan, tmp_path, tmp_path / "models", ["scores"], 1, quietly, processes=2)
    with pytest.raises(UserError, match="is not there, and what it scored is known"):
        climb(plan, tmp_path, tmp_path / "elsewhere", ["times"], 1, quietly)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"method": "layer-drop", "layers": 3}, "ways.half: 3 of 2 layers cannot be taken"),
        ({"method": "pkd-skip", "layers": 1}, "ways.half: no pair of layers is left"),
        ({"method": "bilstm-soft", "layers": 1}, "ways.half: a student that begins from nothing"),
        ({"method": "q8-qat", "student": "bret-tiny"}, "bret-tiny"),
    ],
)
def test_what_cannot_be_taken_is_said_before_anything_is_learned(
    task_folder: Path, tmp_path: Path, way: dict[str, Any], message: str
) -> None:
    plan = Plan.model_validate(stated(task_folder, ways={"whole": {}, "half": way}))
    with pytest.raises(UserError, match=message):
        climb(plan, tmp_path, tmp_path / "models", ["scores"], 1, quietly)
    assert not (tmp_path / "models").exists()


def test_what_was_found_must_be_findings(task_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text("garbage")
    plan = Plan.model_validate(stated(task_folder))
    with pytest.raises(UserError, match=r"runs\.json is not JSON"):
        climb(plan, tmp_path, tmp_path / "models", ["scores"], 1, quietly)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "hole"}, "there is no way 'hole': did you mean 'whole'"),
        ({"base": "half"}, "half has a method"),
        ({"ways": {"whole": {"forms": ["int4"]}}}, "forms"),
        ({"ways": {"whole": {}, "half": {"method": "theseus"}}}, "theseus"),
        ({"ways": {"whole": {}, "half": {"tasks": ["third"]}}}, "there is no 'third'"),
        ({"ways": {"whole": {}, "half": {"layers": 2}}}, "layers: there is no method"),
        ({"timed": ["third"]}, "timed: there is no 'third'"),
    ],
)
def test_a_wrong_plan_is_named(
    task_folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(stated(task_folder, **changes)))
    with pytest.raises(UserError, match=message):
        Plan.load(file)


def test_the_example_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LADDER.parents[3])
    assert Plan.load(LADDER).ways


def test_the_overview_is_the_mean_over_tasks() -> None:
    def row(task: str, way: str, smaller: float, **more: Any) -> dict[str, Any]:
        known = {"task": task, "way": way, "form": "float32", "layers": 2, "of": 0.8, "mean": 0.8}
        return {**known, "smaller": smaller, **more}

    fast = f"faster_{BATCH}x{LENGTH}"
    rows = [
        row("first", "half", 2.0, **{fast: 3.0, "mean": 0.6}),
        row("first", "whole", 1.0),
        row("second", "half", 4.0, of=0.4, mean=0.3),
        row("second", "whole", 1.0),
    ]
    half, whole = overview(rows)
    assert (half["way"], half["smaller"], half["faster"]) == ("half", 3.0, 3.0)
    assert half["tasks"] == "first, second"
    # Of the mean score, not the mean of what is kept of each.
    assert half["kept"] == pytest.approx(100 * 0.9 / 1.2)
    assert (half["lost"], half["worst"]) == (pytest.approx(15), "20 (first)")
    assert whole["kept"] == 100
    assert whole["faster"] is None
