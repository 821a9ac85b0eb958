"""Scores that fine-tuning stored, collected into a table."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stored_scores import COLUMNS, score_rows
from bertwright.core.errors import UserError


def store(folder: Path, **changes: Any) -> Path:
    """Write what finetune stores with one seed and two metrics."""
    folder.mkdir()
    training = {
        "task": "titles",
        "metric": "rouge-l",
        "scores": [0.3],
        "mean": 0.3,
        "interval": None,
        "metrics": {"rouge-l": 0.3, "exact": 0.0},
        "intervals": {"rouge-l": [0.2, 0.4], "exact": [0.0, 0.0]},
        "best_epochs": [9],
        "examples": 395,
        "baselines": [
            {"baseline": "copy", "rouge-l": 0.2, "rouge-l_interval": [0.1, 0.3], "exact": 0.0},
            {"baseline": "constant", "rouge-l": 0.1, "rouge-l_interval": [0.0, 0.2]},
        ],
        **changes,
    }
    (folder / "training.json").write_text(json.dumps(training))
    return folder


def test_one_seed_has_the_intervals_over_examples_of_all_metrics(tmp_path: Path) -> None:
    first, second = score_rows([store(tmp_path / "titler")])
    assert first == {
        "model": "titler",
        "task": "titles",
        "metric": "rouge-l",
        "score": 0.3,
        "interval": "0.2, 0.4",
        "seeds": 1,
        "best_epochs": "9",
        "examples": 395,
        "baseline": "copy",
        "baseline_score": 0.2,
        "baseline_interval": "0.1, 0.3",
    }
    assert set(first) == set(COLUMNS)
    assert (second["metric"], second["baseline"]) == ("exact", "copy")


def test_several_seeds_have_the_mean_and_the_interval_over_seeds(tmp_path: Path) -> None:
    changes = {"scores": [0.2, 0.4], "mean": 0.3, "interval": [0.1, 0.5], "best_epochs": [1, 2]}
    (row,) = score_rows([store(tmp_path / "titler", **changes)])
    assert (row["score"], row["interval"], row["seeds"]) == (0.3, "0.1, 0.5", 2)
    assert row["best_epochs"] == "1, 2"


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text('{"steps": 3}')
    with pytest.raises(UserError, match="has no stored scores"):
        score_rows([tmp_path])
