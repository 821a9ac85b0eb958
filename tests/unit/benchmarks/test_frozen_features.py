"""Heads on frozen features: a row per task, and every run once."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import frozen_features as frozen
from benchmarks.frozen_features import COLUMNS, FrozenFeaturesPlan, compare
from benchmarks.markdown_sections import write_section
from bertwright.runtime.markdown_report import markdown_table
from small_tasks import classes, numbers


@pytest.fixture
def plan(task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FrozenFeaturesPlan:
    monkeypatch.setattr(frozen, "TASK_FOLDERS", {"sst-2": "one", "sick-relatedness": "two"})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    binary = "".join(f"{e.text}\t{'01'[e.label == 'old']}\n" for e in classes())
    related = "".join(f"{e.text}\t{e.text} again\t{e.label}\n" for e in numbers())
    for part in ("train", "dev"):
        (tmp_path / "one" / f"{part}.tsv").write_text(f"sentence\tlabel\n{binary}")
        header = "sentence_A\tsentence_B\trelatedness_score\n"
        (tmp_path / "two" / f"{part}.tsv").write_text(header + related)
    return FrozenFeaturesPlan(
        tmp_path, task_folder / "model", (8, 999), 2, ("sst-2", "sick-relatedness")
    )


@pytest.mark.full
def test_every_task_size_and_metric_has_a_row(
    plan: FrozenFeaturesPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = compare(plan, tmp_path / "results", lambda line: None)
    assert [(row["task"], row["examples"], row["metric"]) for row in rows] == [
        *(("sst-2", size, "accuracy") for size in (8, 32)),
        *(
            ("sick-relatedness", size, metric)
            for size in (8, 32)
            for metric in ("spearman", "pearson")
        ),
    ]
    assert all(row["dev_examples"] == 32 for row in rows)
    assert all(len(scores) == 2 for row in rows for scores in row["scores"].values())

    def refuse(*_: object) -> None:
        raise AssertionError("a run was repeated")

    monkeypatch.setattr(frozen, "_scores", refuse)
    assert compare(plan, tmp_path / "results", lambda line: None) == rows
    write_section(tmp_path / "machines.md", "bench frozen", markdown_table(COLUMNS, rows))
    assert "scikit-learn on the same vectors" in (tmp_path / "machines.md").read_text()


def test_features_of_a_text_are_computed_once(
    plan: FrozenFeaturesPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_sequences: list[int] = []
    original = frozen.FrozenFeatures._read_features

    def spy(self, task_index, sequences):
        num_sequences.append(len(sequences))
        return original(self, task_index, sequences)

    monkeypatch.setattr(frozen.FrozenFeatures, "_read_features", spy)
    compare(replace(plan, seeds=1), tmp_path / "results", lambda line: None)
    assert sum(num_sequences) == len(classes()) + len(numbers())
