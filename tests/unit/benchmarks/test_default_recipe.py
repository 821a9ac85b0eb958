"""The default recipe is chosen on one half of the held-out text, and evaluated on the other."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.default_recipe import EVALUATED_ON, SELECTED_ON, choose, read_result
from bertwright.core.errors import UserError

ARMS = {
    "steady": [(1.02, 1.01), (1.03, 1.02), (1.01, 1.03)],
    # The best on the half that decides, by luck.
    "lucky": [(1.00, 1.11), (0.99, 1.12), (1.01, 1.10)],
    "poor": [(1.50, 1.52), (1.51, 1.51), (1.52, 1.53)],
}


def write_result(folder: Path) -> Path:
    arms: dict[str, Any] = {
        name: {str(s): {SELECTED_ON: a, EVALUATED_ON: b} for s, (a, b) in enumerate(values)}
        for name, values in ARMS.items()
    }
    arms["word-vectors"] = {"0": {"sst-2.accuracy": 0.7}}
    result = {"study": {"name": "family"}, "equal": "6e+14 FLOPs", "provenance": "by hand"}
    (folder / "result.json").write_text(json.dumps({**result, "arms": arms}))
    return folder


def test_only_one_metric_decides_and_the_other_evaluates(tmp_path: Path) -> None:
    choice = choose(read_result(write_result(tmp_path)), SELECTED_ON, EVALUATED_ON, False)
    assert choice.arms == ["lucky", "steady", "poor"]
    assert choice.mean("lucky", EVALUATED_ON).mean == pytest.approx(1.11)
    (worse, opposite), (better, seen) = choice.gain("steady"), choice.gain("poor")
    assert worse.mean == pytest.approx(-0.09)
    assert better.mean == pytest.approx(0.41)
    assert better.interval is not None
    assert better.interval[0] > 0
    assert (opposite.label, seen.label) == ("opposite", "seen")


def test_scores_are_better_if_higher(tmp_path: Path) -> None:
    choice = choose(read_result(write_result(tmp_path)), SELECTED_ON, EVALUATED_ON, True)
    assert choice.arms == ["poor", "steady", "lucky"]
    assert choice.gain("lucky")[0].mean == pytest.approx(0.41)


def test_the_choice_is_written_by_command(tmp_path: Path) -> None:
    document = tmp_path / "default.md"
    document.write_text("# The default recipe\n\nKept.\n")
    arguments = ["default", str(write_result(tmp_path)), "--document", str(document), "--json"]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    text = document.read_text()
    assert text.startswith("# The default recipe\n\nKept.\n")
    assert "**lucky** is chosen from 3 arms of the study family." in text
    assert (
        "| steady | 1.02 [0.9952, 1.045] | 1.02 [0.9952, 1.045] | -0.09 [-0.133, -0.04697] |"
        in text
    )
    assert "by hand" in text


def test_a_choice_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    result = read_result(write_result(tmp_path))
    with pytest.raises(UserError, match="name two metrics"):
        choose(result, SELECTED_ON, SELECTED_ON, False)
    with pytest.raises(UserError, match=r"0 of the arms have both .*add the measures"):
        _ = choose(result, "half.loss", EVALUATED_ON, False).arms
    with pytest.raises(UserError, match=r"there is no .*none: run a study"):
        read_result(tmp_path / "none")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match="is not the result of a study"):
        read_result(tmp_path / "other.json")
