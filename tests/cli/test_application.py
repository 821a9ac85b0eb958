"""The command line starts at once, and a mistake is one sentence and exit code 2."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bertwright import __version__
from bertwright.cli import application
from bertwright.errors import MissingExtra, UserError

# What takes long to import. Which modules are loaded decides how long a start takes (0.1 s for the
# package without these, 0.3 s for help), and can be asserted on a busy machine as seconds cannot.
HEAVY = {
    *("torch", "transformers", "datasets", "tokenizers"),
    *("scipy", "sklearn", "pandas", "pyarrow", "matplotlib"),
}

REPORT = f"""
import sys
heavy = sorted({HEAVY} & set(sys.modules))
print("heavy:", *heavy, file=sys.stderr)
"""


def heavy_after(code: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", code + REPORT], capture_output=True, text=True, check=True
    )
    return ended.stderr.splitlines()[-1].split()[1:]


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert heavy_after("import bertwright") == []


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from bertwright.cli.application import main
sys.argv = ["bertwright", "--help"]
try:
    main()
except SystemExit as ended:
    assert ended.code == 0, ended
"""
    assert heavy_after(code) == []


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(application.app, ["--version"]).stdout == f"{__version__}\n"


@pytest.mark.parametrize("error", [UserError("data: no such folder"), MissingExtra("onnx", "onnx")])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    error: UserError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(application, "app", fails)
    with pytest.raises(SystemExit) as ended:
        application.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err) == (2, "", f"bertwright: {error}\n")
