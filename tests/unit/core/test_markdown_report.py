"""Sections of Markdown reports."""

from pathlib import Path

import pytest

from benchmarks.markdown_sections import write_section
from bertwright.core.errors import UserError
from bertwright.runtime.markdown_report import markdown_table


def test_section_is_rewritten_in_place(tmp_path: Path) -> None:
    document = tmp_path / "speed.md"
    write_section(document, "first", ["one"])
    write_section(document, "second", ["two"])
    write_section(document, "first", ["three"])
    text = document.read_text()
    assert text.startswith("# Speed\n")
    assert "one" not in text
    assert text.index("three") < text.index("two")


def test_text_outside_sections_is_kept(tmp_path: Path) -> None:
    document = tmp_path / "speed.md"
    document.write_text("# Title\n\nWords before.\n")
    write_section(document, "first", ["one"])
    document.write_text(document.read_text() + "\nWords after.\n")
    write_section(document, "first", ["two"])
    text = document.read_text()
    assert text.startswith("# Title\n\nWords before.\n")
    assert text.endswith("\nWords after.\n")


def test_section_states_provenance(tmp_path: Path) -> None:
    write_section(tmp_path / "speed.md", "first", ["one"])
    assert "cores" in (tmp_path / "speed.md").read_text()


def test_section_without_end_raises(tmp_path: Path) -> None:
    document = tmp_path / "speed.md"
    document.write_text("<!-- first: written by command -->\n")
    with pytest.raises(UserError, match="has no end"):
        write_section(document, "first", ["one"])


def test_table_omits_empty_columns() -> None:
    columns = {"a": "first", "b": "second", "c": "third"}
    lines = markdown_table(columns, [{"a": 1234, "b": 0.12345, "c": None}, {"a": 1, "b": None}])
    assert lines == ["| first | second |", "| --- | --- |", "| 1,234 | 0.1235 |", "| 1 |  |"]
