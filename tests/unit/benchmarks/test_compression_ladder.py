"""Comparison of compressions: every run once, and the figures of every form."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.compression import compare as compression
from benchmarks.compression import variants
from benchmarks.compression.claims import evaluate_claims
from benchmarks.compression.compare import run_plan
from benchmarks.compression.plan import CompressionPlan
from benchmarks.compression.summary import BATCH_SIZE, SEQUENCE_LENGTH, summarise_variants
from bertwright.core.errors import UserError
from bertwright.interop.onnx.manifest import is_onnx_folder
from bertwright.timing.artefacts import Artefact, interleaved_seconds
from checkout import CHECKOUT, EXAMPLES

LADDER = EXAMPLES / "compression" / "ladder.yaml"


def plan_data(task_folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the content of a plan."""
    return {
        "description": "What is lost?",
        "encoder": str(task_folder / "model"),
        "tasks": {
            "first": {"task": "sst-2", "data": str(task_folder)},
            "second": {"task": "sst-2", "data": str(task_folder), "max_examples": 16},
        },
        "settings": {"epochs": 1, "compile": False, "calibrate": False},
        "baseline": "whole",
        "variants": {
            "whole": {"forms": ["float32", "bf16"]},
            "half": {
                "method": "output-distillation",
                "num_layers": 1,
                "with_undistilled": True,
                "settings": {"epochs": 1, "compile": False},
                "prune_vocabulary": True,
                "forms": ["float32", "graph"],
                "tasks": ["first"],
            },
        },
        "seeds": 2,
        **changes,
    }


def result(task: str, variant: str, scores: list[float], undistilled: list[float] | None = None):
    """Return a row of the table with the scores of two seeds."""
    return {
        "task": task, "variant": variant, "form": "float32",
        "scores": scores, "undistilled": undistilled,
    }  # fmt: skip


def test_claims_compare_means_over_shared_tasks_seed_by_seed(task_folder: Path) -> None:
    claim = {"claim": "It helps.", "source": "S"}
    data = plan_data(
        task_folder,
        seeds=3,
        claims=[
            {**claim, "variant": "half", "above": "half", "undistilled": "above"},
            {**claim, "variant": "half", "above": "whole", "margin": -30},
        ],
    )
    data["variants"]["half"]["tasks"] = ["first", "second"]
    rows = [
        result("first", "whole", [0.9, 0.9, 0.9]),
        result("second", "whole", [0.8, 0.7, 0.75]),
        result("first", "half", [0.7, 0.71, 0.72], [0.6, 0.61, 0.62]),
        result("second", "half", [0.5, 0.5, 0.5], [0.4, 0.41, 0.39]),
    ]
    plan = CompressionPlan.model_validate(data)
    helps, keeps = evaluate_claims(plan, rows)
    assert helps["mean"] == pytest.approx(10.0)
    assert (helps["label"], helps["tasks"]) == ("seen", "first, second")
    assert helps["compared"] == "half above half without its teacher"
    assert keeps["mean"] == pytest.approx(-50 * (0.2 + 0.3 + 0.19 + 0.2 + 0.18 + 0.25) / 3)
    assert keeps["compared"] == "half above whole by -30"
    assert evaluate_claims(plan, rows[:2]) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"above": "whol"}, "claims: there is no variant 'whol': did you mean 'whole'"),
        ({"undistilled": "above"}, "variants.whole needs with_undistilled: true"),
    ],
)
def test_claims_about_missing_students_raise(
    task_folder: Path, change: dict[str, str], message: str
) -> None:
    claim = {"claim": "It helps.", "source": "S", "variant": "half", "above": "whole", **change}
    with pytest.raises(ValueError, match=message):
        CompressionPlan.model_validate(plan_data(task_folder, claims=[claim]))


def no_log(_: str) -> None:
    """Log nothing."""


@pytest.mark.full
def test_every_form_is_scored_measured_and_timed_once(
    task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, models = (
        CompressionPlan.model_validate(plan_data(task_folder, timed_tasks=["first"])),
        tmp_path / "models",
    )
    monkeypatch.setattr(compression, "TIMED_SHAPES", ((1, 8, 1),))
    timed: list[Artefact] = []

    def seconds(artefacts: Sequence[Artefact], *settings: Any) -> list[list[float]]:
        """Return the seconds of the graph for every artefact; each would need a process."""
        timed.extend(artefacts)
        (graph,) = (artefact for artefact in artefacts if is_onnx_folder(artefact.folder))
        return interleaved_seconds([graph], *settings) * len(artefacts)

    monkeypatch.setattr(compression, "interleaved_seconds", seconds)
    rows = run_plan(plan, tmp_path, models, ["scores", "times"], 1, no_log)
    whole, _, half, graph, second, _ = rows
    assert [(r["task"], r["variant"], r["form"]) for r in rows] == [
        ("first", "whole", "float32"),
        ("first", "whole", "bf16"),
        ("first", "half", "float32"),
        ("first", "half", "graph"),
        ("second", "whole", "float32"),
        ("second", "whole", "bf16"),
    ]
    assert whole["kept"] == 100
    assert whole["smaller"] == whole["faster_1x8"] == 1
    assert len(set(timed)) == len(timed) == 4
    assert "faster_1x8" not in second
    assert not [folder for folder in models.iterdir() if folder.name.startswith("second-whole")]
    assert half["scores"] == graph["scores"]
    assert whole["over_undistilled"] is None
    assert half["smaller"] > 1
    assert half["parameters"] < whole["parameters"]
    assert (whole["layers"], half["layers"]) == (2, 1)
    assert half["over_undistilled"] is not None

    def refuse(*_: object) -> None:
        raise AssertionError("a run was repeated")

    monkeypatch.setattr(variants.VariantBuilder, "build", refuse)
    monkeypatch.setattr(variants, "load", refuse)
    monkeypatch.setattr(compression, "interleaved_seconds", refuse)
    assert run_plan(plan, tmp_path, models, ["scores", "times"], 1, no_log) == rows
    assert run_plan(plan, tmp_path, models, [], 1, no_log) == rows


@pytest.mark.full
@pytest.mark.usefixtures("preloaded_processes")
def test_missing_models_are_not_timed(task_folder: Path, tmp_path: Path) -> None:
    only_whole = {"whole": {}}
    plan = CompressionPlan.model_validate(plan_data(task_folder, variants=only_whole, seeds=1))
    run_plan(plan, tmp_path, tmp_path / "models", ["scores"], 1, no_log, num_processes=2)
    with pytest.raises(UserError, match="does not exist, but has scores"):
        run_plan(plan, tmp_path, tmp_path / "elsewhere", ["times"], 1, no_log)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"method": "layer-drop", "num_layers": 3}, "variants.half: 3 of 2 layers cannot be kept"),
        (
            {"method": "pkd-skip", "num_layers": 1},
            "variants.half: .* leaves no layer pair to compare",
        ),
        (
            {"method": "bilstm-soft", "num_layers": 1},
            "variants.half: a student that starts from a recipe",
        ),
        ({"method": "q8-qat", "student": "bret-tiny"}, "bret-tiny"),
    ],
)
def test_infeasible_variants_are_refused_before_training(
    task_folder: Path, tmp_path: Path, variant: dict[str, Any], message: str
) -> None:
    plan = CompressionPlan.model_validate(
        plan_data(task_folder, variants={"whole": {}, "half": variant})
    )
    with pytest.raises(UserError, match=message):
        run_plan(plan, tmp_path, tmp_path / "models", ["scores"], 1, no_log)
    assert not (tmp_path / "models").exists()


def test_results_that_are_not_json_are_refused(task_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text("garbage")
    plan = CompressionPlan.model_validate(plan_data(task_folder))
    with pytest.raises(UserError, match=r"runs\.json is not JSON"):
        run_plan(plan, tmp_path, tmp_path / "models", ["scores"], 1, no_log)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "hole"}, "there is no variant 'hole': did you mean 'whole'"),
        ({"baseline": "half"}, "half has a method"),
        ({"variants": {"whole": {"forms": ["int4"]}}}, "forms"),
        ({"variants": {"whole": {}, "half": {"method": "theseus"}}}, "theseus"),
        ({"variants": {"whole": {}, "half": {"tasks": ["third"]}}}, "there is no 'third'"),
        ({"variants": {"whole": {}, "half": {"num_layers": 2}}}, "num_layers: needs a method"),
        ({"timed_tasks": ["third"]}, "timed_tasks: there is no 'third'"),
    ],
)
def test_a_wrong_plan_is_named(
    task_folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(plan_data(task_folder, **changes)))
    with pytest.raises(UserError, match=message):
        CompressionPlan.load(file)


def test_the_example_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert CompressionPlan.load(LADDER).variants


def test_the_summary_is_the_mean_over_tasks() -> None:
    def row(task: str, variant: str, smaller: float, **more: Any) -> dict[str, Any]:
        figures = {"layers": 2, "baseline_mean": 0.8, "mean": 0.8, "smaller": smaller}
        return {"task": task, "variant": variant, "form": "float32", **figures, **more}

    speed_up = f"faster_{BATCH_SIZE}x{SEQUENCE_LENGTH}"
    rows = [
        row("first", "half", 2.0, **{speed_up: 3.0, "mean": 0.6}),
        row("first", "whole", 1.0),
        row("second", "half", 4.0, baseline_mean=0.4, mean=0.3),
        row("second", "whole", 1.0),
    ]
    half, whole = summarise_variants(rows)
    assert (half["variant"], half["smaller"], half["faster"]) == ("half", 3.0, 3.0)
    assert half["tasks"] == "first, second"
    # The ratio of the means, not the mean of the ratios.
    assert half["kept"] == pytest.approx(100 * 0.9 / 1.2)
    assert (half["lost"], half["worst"]) == (pytest.approx(15), "20 (first)")
    assert whole["kept"] == 100
    assert whole["faster"] is None
