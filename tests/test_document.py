"""A command rewrites its own section of a document, and nothing else."""

from pathlib import Path

import pytest

from bertwright.document import command_line, table, write_section
from bertwright.errors import UserError


def test_a_section_is_rewritten_in_its_place(tmp_path: Path) -> None:
    document = tmp_path / "speed.md"
    write_section(document, "first", ["one"])
    write_section(document, "second", ["two"])
    write_section(document, "first", ["three"])
    text = document.read_text()
    assert text.startswith("# Speed\n")
    assert "one" not in text
    assert text.index("three") < text.index("two")


def test_what_stands_outside_the_marks_is_left_alone(tmp_path: Path) -> None:
    document = tmp_path / "speed.md"
    document.write_text("# Title\n\nWords before.\n")
    write_section(document, "first", ["one"])
    document.write_text(document.read_text() + "\nWords after.\n")
    write_section(document, "first", ["two"])
    text = document.read_text()
    assert text.startswith("# Title\n\nWords before.\n")
    assert text.endswith("\nWords after.\n")


def test_a_section_says_where_it_comes_from(tmp_path: Path) -> None:
    write_section(tmp_path / "speed.md", "first", ["one"])
    assert "cores" in (tmp_path / "speed.md").read_text()


@pytest.mark.parametrize(
    ("program", "said"),
    [("/bin/bertwright", "bertwright"), ("/src/bertwright/__main__.py", "python -m bertwright")],
)
def test_a_command_is_said_as_it_can_be_typed(
    program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [program, "bench", "-o", str(tmp_path / "an out")])
    assert command_line() == f"{said} bench -o 'an out'"


def test_a_section_without_an_end_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "speed.md"
    document.write_text("<!-- first: written by command -->\n")
    with pytest.raises(UserError, match="has no end"):
        write_section(document, "first", ["one"])


def test_a_table_leaves_out_what_no_row_has() -> None:
    columns = {"a": "first", "b": "second", "c": "third"}
    lines = table(columns, [{"a": 1234, "b": 0.12345, "c": None}, {"a": 1, "b": None}])
    assert lines == ["| first | second |", "| --- | --- |", "| 1,234 | 0.1235 |", "| 1 |  |"]
