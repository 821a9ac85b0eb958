"""The command line starts at once, and a mistake is one sentence and exit code 2."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bertwright import __version__
from bertwright.cli import app as application
from bertwright.core.errors import MissingExtra, TrainingInterrupted, UserError

# Slow imports. Without them the package starts in 0.1 s and help in 0.3 s; which modules are loaded
# can be asserted on a busy machine, seconds cannot.
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
    """Return the slow modules that a program imports."""
    process = subprocess.run(
        [sys.executable, "-c", code + REPORT], capture_output=True, text=True, check=True
    )
    return process.stderr.splitlines()[-1].split()[1:]


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert heavy_after("import bertwright") == []


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
from bertwright.cli.app import main
sys.argv = ["bertwright", "--help"]
try:
    main()
except SystemExit as exit:
    assert exit.code == 0, exit
"""
    assert heavy_after(code) == []


@pytest.mark.parametrize("words", ["index", "get", "tokenizer train", "vocab extend"])
def test_help_breaks_lines_at_the_width_of_the_terminal(words: str) -> None:
    help = CliRunner().invoke(
        application.app, [*words.split(), "--help"], terminal_width=300, env={"COLUMNS": "300"}
    )
    description = help.stdout.split("╭")[0].strip().splitlines()[1:]
    assert len([line for line in description if line.strip()]) == 2


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[list[str], Any]]:
    """Yield the words and the command of every verb."""
    group = group or typer.main.get_command(application.app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield [*path, name], command


def test_help_prints_every_bracket() -> None:
    for words, command in commands():
        texts = [getattr(parameter, "help", None) or "" for parameter in command.params]
        with_brackets = [text.replace("\\[", "[") for text in texts if "[" in text]
        if with_brackets:
            output = CliRunner().invoke(
                application.app, [*words, "--help"], terminal_width=300, env={"COLUMNS": "300"}
            )
            assert all(text in output.stdout for text in with_brackets), words


def test_every_command_that_reads_a_model_takes_plugins() -> None:
    without = [
        words
        for words, command in commands()
        if {"model", "models"} & (names := {parameter.name for parameter in command.params})
        and "plugin" not in names
    ]
    assert without == []


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(application.app, ["--version"]).stdout == f"{__version__}\n"


@pytest.mark.parametrize("error", [UserError("data: no such folder"), MissingExtra("onnx", "onnx")])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    error: UserError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_settings: object) -> None:
        raise error

    monkeypatch.setattr(application, "app", fails)
    with pytest.raises(SystemExit) as exit_info:
        application.main()
    out, err = capsys.readouterr()
    assert (exit_info.value.code, out, err) == (2, "", f"bertwright: {error}\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt, typer.Abort, RecursionError])
def test_an_interrupted_command_ends_with_one_sentence(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also before Typer runs it, and where an interrupted import fails in another way."""

    def is_interrupted(**_settings: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr(application, "app", is_interrupted)
    with pytest.raises(SystemExit) as exit_info:
        application.main()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    out, err = capsys.readouterr()
    assert (exit_info.value.code, out, err) == (130, "", "bertwright: stopped by SIGINT\n")


@pytest.mark.parametrize(
    ("words", "named", "command"),
    [
        (["evaluate", "--sute", "retrieval"], ["--sute", "--suite"], "evaluate"),
        (["predict", "model", "--qqqq"], ["--qqqq"], "predict"),
        (["predict", "model", "-q"], ["-q"], "predict"),
        (["predict"], ["'model'"], "predict"),
        (["predict", "model", "file", "surplus"], ["surplus"], "predict"),
        (["get", "--output"], ["--output"], "get"),
        (["vocab", "extend", "--vocab-size"], ["--vocab-size"], "vocab extend"),
        (["vocab", "extent"], ["extent", "extend"], "vocab"),
        (["evalute"], ["evalute", "evaluate"], "bertwright"),
        (["export", "model", "--to", "elsewhere", "-o", "x"], ["--to", "elsewhere"], "export"),
        (["export", "model", "--to", "onnx"], ["--output"], "export"),
        (["pretrain", "data", "-o", "x", "--seed", "one"], ["--seed"], "pretrain"),
        (["search", "index", "--top", "0"], ["--top"], "search"),
        (["export", "a\x1b[2J\nb", "-o", "c", "d"], ["extra"], "export"),
    ],
)
def test_a_usage_error_is_one_sentence_that_names_the_word_and_the_help(
    words: list[str],
    named: list[str],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bertwright", *words])
    with pytest.raises(SystemExit) as exit_info:
        application.main()
    out, err = capsys.readouterr()
    sentence = err.removesuffix("\n")
    assert (exit_info.value.code, out) == (2, "")
    assert sentence.startswith("bertwright: ")
    assert sentence.isprintable()
    assert sentence.endswith(f"{command} --help")
    assert all(name in sentence for name in named), sentence


@pytest.mark.parametrize("words", [[], ["vocab"]])
def test_a_command_without_arguments_prints_only_its_help(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bertwright", *words])
    with pytest.raises(SystemExit):
        application.main()
    out, err = capsys.readouterr()
    assert "--help" in out
    assert err == ""


@pytest.mark.parametrize(
    "words",
    [
        "analyse missing -o OUTPUT",
        "compare bert gpt --data missing -o OUTPUT",
        "embed missing -o OUTPUT",
        "evaluate missing --data missing --suite -o OUTPUT",
        "evaluate missing --data missing --errors OUTPUT",
        "mine missing --pairs missing -o OUTPUT",
        "study run missing -o OUTPUT",
        "trace --model missing --text text --html OUTPUT",
        "view missing text -o OUTPUT",
    ],
)
def test_outputs_are_checked_before_anything_is_read(words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file" / "child"
    result = CliRunner().invoke(
        application.app, [str(output) if word == "OUTPUT" else word for word in words.split()]
    )
    assert isinstance(result.exception, UserError)
    assert str(result.exception).startswith(f"{output} cannot be created")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("bertwright.studies.run.run_study", "study run dropout -o OUTPUT"),
        ("bertwright.studies.run.run_study", "compare bert-tiny gpt-tiny --data x -o OUTPUT"),
        (
            "bertwright.suites.report.evaluate_suite",
            "evaluate a --suite --data OUTPUT -o OUTPUT/x",
        ),
    ],
)
def test_a_command_that_continues_by_itself_names_no_option(
    function: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise TrainingInterrupted(signal.SIGTERM, 3, tmp_path / "step-00000003")

    monkeypatch.setattr(function, stop)
    monkeypatch.setattr("bertwright.interop.loading.load", lambda *_: None)
    result = CliRunner().invoke(application.app, words.replace("OUTPUT", str(tmp_path)).split())
    assert result.exit_code == 143
    message = "stopped by SIGTERM after step 3; run the same command to continue"
    assert message in result.stderr
