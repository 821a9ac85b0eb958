"""Files of suites, the standard one, and the command: mistakes are one sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.cli.verbs.tasks.evaluate import score_lines
from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.suites.suite import EvaluationSuite
from commands import invoke, invoke_json

REAL_DATA = Path(__file__).parents[4] / "shared" / "data"

BLIMP = {"kind": "minimal-pairs", "file": "blimp.jsonl"}
PROBE = {"kind": "probe", "task": "sst-2", "folder": "noise"}
TABLE = {"file": "kinds.tsv", "good": "{context} {kind}", "bad": "{context} {other}"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "tasks: is missing"),
        ({"tasks": {}}, "tasks: must hold 1 or more"),
        ({"tasks": {"a": BLIMP}, "model": "b"}, "has no key 'model'"),
        ({"tasks": {"a": {"file": "x"}}}, "tasks.a: needs a kind"),
        ({"tasks": {"a": {**BLIMP, "kind": "minimal"}}}, "has no kind 'minimal'"),
        ({"tasks": {"a": {**BLIMP, "pairs": 3}}}, "has no key 'pairs'"),
        ({"tasks": {"a": {**BLIMP, "pairs_per_paradigm": 0}}}, "must be 1 or more"),
        (
            {"tasks": {"a": {"kind": "pair-templates", "parts": {"b": {**TABLE, "bad": "x"}}}}},
            "'x' names no column",
        ),
        (
            {"tasks": {"a": {"kind": "pair-templates", "parts": {"b": {**TABLE, "bad": "{x"}}}}},
            "'{x' is no template",
        ),
        *(
            (
                {"tasks": {"a": {"kind": "pair-templates", "parts": {"b": {**TABLE, "bad": bad}}}}},
                f"{bad!r} formats a column",
            )
            for bad in ("{kind:d}", "{kind!r}", "{kind:{other}}")
        ),
        (
            {"tasks": {"a": {**PROBE, "kind": "fine-tuning", "settings": {"epoch": 1}}}},
            "did you mean 'epochs'",
        ),
        ({"tasks": {"a": {"kind": "probe", "folder": "b"}}}, "needs either a task or the columns"),
        ({"tasks": {"a": {**PROBE, "task": "sst-3"}}}, "did you mean 'sst-2'"),
        (
            {"tasks": {"a": BLIMP}, "word_vectors": {"text": ["a"], "overrides": ["breadth=3"]}},
            "breadth",
        ),
    ],
)
def test_mistakes_in_a_suite_name_the_file_and_the_key(
    content: Any, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=r"mine\.yaml") as caught:
        EvaluationSuite.load(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_tasks_are_named(suite: EvaluationSuite) -> None:
    with pytest.raises(UserError, match="did you mean 'search'"):
        suite.select(["searches"])
    assert [*suite.select(["search", "grammar"]).tasks] == ["grammar", "search"]


def test_standard_suite_has_fifteen_tasks_of_every_ability() -> None:
    suite = EvaluationSuite.load()
    assert len(suite.tasks) == 15
    assert len({task.ability for task in suite.tasks.values()}) == 5
    assert all(task.title for task in suite.tasks.values())


@pytest.mark.real_data
def test_standard_suite_finds_its_files() -> None:
    for task in EvaluationSuite.load().tasks.values():
        assert all(file.is_file() for file in task.files(REAL_DATA))


def test_command_writes_a_report_of_several_models(
    data: Path, suite_file: Path, model: TextModel, tmp_path: Path
) -> None:
    model.save(tmp_path / "first")
    model.save(tmp_path / "second")
    words = ("evaluate", tmp_path / "first", tmp_path / "second", "--suite-file", suite_file)
    options = ("--data", data, "--tasks", "grammar, search", "-o", tmp_path / "report")
    vectors = ("--word-vectors", tmp_path / "first")
    report = invoke_json(*words, *options, *vectors)
    assert [system["name"] for system in report["systems"]] == [
        "first",
        "second",
        "word vectors",
        "words alone",
    ]
    assert [task["name"] for task in report["tasks"]] == ["grammar", "search"]
    score = report["tasks"][1]["results"]["first"]["score"]
    shown = invoke(*words, *options, *vectors).stdout
    assert f"{100 * score:.1f} [" in shown
    assert str(tmp_path / "report" / "report.html") in shown
    assert "in mteb" not in shown
    with_mteb = score_lines(report | {"mteb": {"search": {"first": 0.123}}}, tmp_path)
    header, _, grammar, search, *_ = ([cell.strip() for cell in r.split("|")] for r in with_mteb)
    column = header.index("first in mteb")
    assert (grammar[column], search[column]) == ("", "12.3")
    assert search[header.index("second in mteb")] == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evaluate m --suite --data .", "name its folder with -o"),
        ("evaluate m m --data .", "several models are compared by --suite only"),
        ("evaluate m --data . --tasks a", "this is for --suite: leave --tasks out"),
        ("evaluate m --suite --data . -o r --errors e", "leave --errors out"),
        ("evaluate m --suite --data nowhere -o r", "nowhere: no such folder"),
        ("evaluate m m --suite --data . -o r", "two models are called m"),
        ("evaluate m --suite-file none.yaml --data . -o r", "there is no file none.yaml"),
    ],
)
def test_mistakes_on_the_command_line(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    result = CliRunner().invoke(app, words.split())
    assert message in str(result.exception)
    assert not (tmp_path / "r").exists()
