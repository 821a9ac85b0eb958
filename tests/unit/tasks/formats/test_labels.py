"""Labels: every format is parsed, and a missing value never becomes a class."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import find_task, table_task
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
)
from bertwright.tasks.formats.labels import Label, LabelKind
from bertwright.tasks.formats.tables import Columns, TableReader

MISSING = ["NaN", "nan", "None", "null", "NULL", "NA", "N/A", "<NA>", "", " ", "inf", "-Infinity"]


def jsonl(path: Path, *values: Any) -> Path:
    lines = (json.dumps({"text": f"text {n}", "label": value}) for n, value in enumerate(values))
    path.write_text("\n".join(lines) + "\n")
    return path


def labels_of(path: Path, kind: LabelKind) -> list[Label | None]:
    return [example.label for example in TableReader(label_kind=kind).read(path)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1, 0, 0], [0, 1, 1], [0, 0, 0]], [("0",), ("1", "2"), ()]),
        ([[True, False, True], [False, True, False]], [("0", "2"), ("1",)]),
        ([[0.0, 1.0], [1.0, 0.0]], [("1",), ("0",)]),
        (["1,0,0", "0, 1, 0"], [("0",), ("1",)]),
        (["[1, 0, 0]", "[0, 1, 1]"], [("0",), ("1", "2")]),
        # Names that are numbers: rows of different lengths, or texts that name nothing twice.
        ([[1], [0, 1]], [("1",), ("0", "1")]),
        ([["0", "1"], ["1", "0"]], [("0", "1"), ("1", "0")]),
        (["0,1", "1"], [("0", "1"), ("1",)]),
        ([["a", "b"], "a, b", []], [("a", "b"), ("a", "b"), ()]),
        ([[3, 5], [4]], [("3", "5"), ("4",)]),
    ],
)
def test_several_labels_are_names_or_an_indicator_vector(
    tmp_path: Path, rows: list[Any], expected: list[tuple[str, ...]]
) -> None:
    assert labels_of(jsonl(tmp_path / "x.jsonl", *rows), "labels") == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (["a", "a"], "has the label 'a' twice"),
        ("a,b,a", "has the label 'a' twice"),
        ([1, 0, 0], "has the label '0' twice"),
        ([["a"], ["b"]], 'expected a label, got ["a"]'),
        (["a", None], "got null, which means a missing one"),
        (["a", float("nan")], "got NaN, which means a missing one"),
        ({"a": 1}, 'expected a list of labels, got {"a": 1}'),
        (3, "expected a list of labels, got 3"),
        (None, "expected a list of labels, got null"),
        ("NaN", "got 'NaN', which means a missing one"),
        ("['a', 'b']", "is not a JSON list"),
        ("[" * 100_000, "is not a JSON list"),
    ],
)
def test_invalid_labels_in_a_row_are_refused(tmp_path: Path, value: Any, sentence: str) -> None:
    path = jsonl(tmp_path / "x.jsonl", ["b"], value)
    with pytest.raises(UserError) as caught:
        labels_of(path, "labels")
    assert str(caught.value).startswith(f"{path} line 2, column 'label'")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("kind", ["class", "number"])
@pytest.mark.parametrize("spelled", MISSING)
def test_missing_label_in_a_table_is_refused_with_its_line(
    tmp_path: Path, spelled: str, kind: LabelKind
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"text,label\na,1\nb,{spelled}\nc,0\n")
    with pytest.raises(UserError, match=r"x\.csv line 3, column 'label'"):
        labels_of(path, kind)


@pytest.mark.parametrize("kind", ["class", "number"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "NaN", [1], {"a": 1}])
def test_missing_label_in_json_is_refused_with_its_line(
    tmp_path: Path, value: Any, kind: LabelKind
) -> None:
    path = jsonl(tmp_path / "x.jsonl", 1, value)
    with pytest.raises(UserError, match=r"x\.jsonl line 2, column 'label'"):
        labels_of(path, kind)


def test_words_that_only_resemble_a_missing_value_are_classes(tmp_path: Path) -> None:
    stated = ["none", "NONE", "na", "nano", "informative"]
    assert labels_of(jsonl(tmp_path / "x.jsonl", *stated), "class") == stated


def test_numbers_and_truth_values_are_classes_by_one_name(tmp_path: Path) -> None:
    stated = [1, 1.0, "1", -2.0, 0.5, True, "true"]
    expected = ["1", "1", "1", "-2", "0.5", "true", "true"]
    assert labels_of(jsonl(tmp_path / "x.jsonl", *stated), "class") == expected


def test_columns_of_parquet_have_labels_of_every_type(tmp_path: Path) -> None:
    def written(values: list[Any]) -> Path:
        table = pyarrow.table({"text": ["a"] * len(values), "label": values})
        parquet.write_table(table, tmp_path / "x.parquet")
        return tmp_path / "x.parquet"

    assert labels_of(written([Decimal("1.0"), Decimal("2.5")]), "class") == ["1", "2.5"]
    assert labels_of(written([[1, 0], [0, 1]]), "labels") == [("0",), ("1",)]
    for values in ([date(2024, 1, 1)], [b"x"], [{"a": 1}]):
        with pytest.raises(UserError, match=r"x\.parquet row 1, column 'label': expected a label"):
            labels_of(written(values), "class")


CLASS, LABELS = table_task("task", Columns()), table_task("task", Columns(), "labels")
NUMBER = table_task("task", Columns(), "number")


def test_labels_from_python_have_the_same_names() -> None:
    stated = [Example("a", label=label) for label in (np.int64(1), 1.0, True, "x ")]
    assert [CLASS.output_type.reference(example) for example in stated] == ["1", "1", "true", "x"]


@pytest.mark.parametrize(
    ("task", "example"),
    [
        (CLASS, Example("a", label=float("nan"))),
        (CLASS, Example("a", label=np.float32("nan"))),
        (CLASS, Example("a", label=("b",))),
        (LABELS, Example("a", label="sport")),
        (LABELS, Example("a", label=("b", "b"))),
        (NUMBER, Example("a", label=float("inf"))),
        (NUMBER, Example("a", label="many")),
        (find_task("rank"), Example("a", "b", label=float("nan"))),
        (find_task("similarity"), Example("a", "b", label=float("nan"))),
        (find_task("ner"), TaggedSentence(("a", "b"), ("O",))),
        (find_task("ner"), TaggedSentence(("a", "b"), ("O", None))),  # type: ignore[arg-type]
        (find_task("swag"), MultipleChoice("a", ("b", "c"), label=2)),
        (find_task("squad1"), ExtractiveQuestion("which", "a bird", ("bird",), (0,))),
    ],
    ids=str,
)
def test_invalid_label_is_refused_in_python_too(task: Any, example: Any) -> None:
    with pytest.raises(UserError):
        task.require_labels([example], "training")
