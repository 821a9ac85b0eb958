"""``bertwright sample`` and ``bertwright get`` on the command line."""

import json
import sys
from pathlib import Path

import pytest

from bertwright.cli import app as application
from bertwright.data.sample_text import sample
from bertwright.data.sample_text.installed_packages import InstalledPackage, SourceModule


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Return the exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["bertwright", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        application.main()
    return int(ended.value.code or 0)


def test_get_lists_all_data_sets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "get", "--json") == 0
    table = json.loads(capsys.readouterr().out)
    assert table["cola"]["files"][0]["urls"] == [
        "https://dl.fbaipublicfiles.com/glue/data/CoLA.zip"
    ]
    assert run(monkeypatch, "get") == 0
    assert "licence: CC BY-SA 4.0" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["get", "colla", "-o", "x"], "get: no data set 'colla': did you mean 'cola'?"),
        (["get", "cola"], "get: name the output folder of cola with -o"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err == f"bertwright: {sentence}\n"


def test_sample_reports_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fruits = ("apples", "pears", "plums", "dates")
    docstring = "\n\n".join(f"This is all that there is to know of {name}." for name in fruits)
    (tmp_path / "fruit.py").write_text(f'"""{docstring}"""')
    modules = (SourceModule("fruit", tmp_path / "fruit.py"),)
    monkeypatch.setattr(
        sample, "documented_packages", lambda: [InstalledPackage("fruit", "1.0", modules)]
    )
    out = tmp_path / "out"
    command = ("sample", "-o", out, "--num-workers", "1")
    assert run(monkeypatch, *command, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["sentences"] == 4
    assert result["packages"] == {"fruit": "1.0"}
    assert len(Path(result["text"]).read_text().splitlines()) == 4
    assert run(monkeypatch, *command) == 2
    assert "already exists" in capsys.readouterr().err
