"""The command in the provenance of results."""

from pathlib import Path

import pytest

from bertwright.runtime.markdown_report import command_line


def test_a_command_names_no_folder_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "checkout", tmp_path / "models" / "titles"
    inside.mkdir()
    monkeypatch.chdir(inside)
    arguments = ["-o", str(inside / "docs/page.md"), str(outside), "../shared/data", "--json"]
    monkeypatch.setattr("sys.argv", [str(tmp_path / "benchmarks/__main__.py"), *arguments])
    expected = "python -m benchmarks -o docs/page.md titles ../shared/data --json"
    assert command_line() == expected
