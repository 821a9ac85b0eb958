"""Heads on frozen features: the table has every task, and what was found is not found again."""

from pathlib import Path

import pytest

from bertwright.bench import frozen
from bertwright.bench.frozen import COLUMNS, Frozen, compare
from bertwright.document import table, write_section
from small_tasks import classes, numbers


@pytest.fixture
def plan(task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frozen:
    monkeypatch.setattr(frozen, "FOLDERS", {"sst-2": "one", "sick-relatedness": "two"})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    binary = "".join(f"{e.first}\t{'01'[e.label == 'old']}\n" for e in classes())
    related = "".join(f"{e.first}\t{e.first} again\t{e.label}\n" for e in numbers())
    for part in ("train", "dev"):
        (tmp_path / "one" / f"{part}.tsv").write_text(f"sentence\tlabel\n{binary}")
        header = "sentence_A\tsentence_B\trelatedness_score\n"
        (tmp_path / "two" / f"{part}.tsv").write_text(header + related)
    return Frozen(tmp_path, task_folder / "model", (8, 20, 999), 2, ("sst-2", "sick-relatedness"))


def test_every_task_and_size_has_a_row_for_each_metric_once(
    plan: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = compare(plan, tmp_path / "found", lambda line: None)
    assert [(row["task"], row["examples"], row["metric"]) for row in rows] == [
        *(("sst-2", size, "accuracy") for size in (8, 20, 32)),
        *(
            ("sick-relatedness", size, metric)
            for size in (8, 20, 32)
            for metric in ("spearman", "pearson")
        ),
    ]
    assert all(row["judged"] == 32 for row in rows)
    assert all(len(scores) == 2 for row in rows for scores in row["scores"].values())

    def refuse(*_: object) -> None:
        raise AssertionError("it was found before")

    monkeypatch.setattr(frozen, "_scores", refuse)
    assert compare(plan, tmp_path / "found", lambda line: None) == rows
    write_section(tmp_path / "machines.md", "bench frozen", table(COLUMNS, rows))
    assert "scikit-learn on the same vectors" in (tmp_path / "machines.md").read_text()


def test_a_text_is_read_once_whatever_it_trains(
    plan: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = frozen.KeptStates._read

    def spy(self, part, rows):
        read.append(len(rows))
        return original(self, part, rows)

    monkeypatch.setattr(frozen.KeptStates, "_read", spy)
    compare(plan, tmp_path / "found", lambda line: None)
    assert sum(read) == len(classes()) + len(numbers())
