"""The command in the provenance of results."""

import sys
from importlib.machinery import ModuleSpec
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
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin/bertwright"), *arguments])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    stated = "-o docs/page.md titles ../shared/data --json"
    assert command_line() == f"bertwright {stated}"
    package = ModuleSpec("tests.hub.__main__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", package)
    assert command_line() == f"python -m tests.hub {stated}"
