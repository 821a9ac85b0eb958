"""``compress --check`` finds what it is there to find."""

import json
import pickle
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bertwright.analysis.planted.expecting import below, same
from bertwright.cli.application import app
from bertwright.errors import Interrupted, UserError
from bertwright.studies.compression_checks import checking
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.page import draw, write_checks
from bertwright.studies.compression_checks.row import Checked, Measured, Row
from bertwright.studies.compression_checks.rows import all_rows, chosen


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["compress", "--check", *words])


def row(*came, number: str = "C1") -> Row:
    def run(ground: Ground):
        for each in came:
            if isinstance(each, Exception):
                raise each
            yield each

    return Row(number, "a-row", "Is it so?", "somebody", run)


def checked(own: Row, monkeypatch: pytest.MonkeyPatch, quick: bool = False) -> Checked:
    monkeypatch.setattr(checking, "chosen", lambda names: [own])
    return checking.check(Ground(Path("nowhere"), quick), own.number)


def test_rows_have_numbers_of_their_own() -> None:
    numbers = [each.number for each in all_rows()]
    assert len(set(numbers)) == len(numbers)
    assert {f"C{n}" for n in range(1, 22)} <= {*numbers}
    assert chosen(["c21", "meter"]) == [
        each for each in all_rows() if each.number in ("C21", "meter")
    ]
    with pytest.raises(UserError, match="there is no row 'C99'"):
        chosen(["C99"])


def test_what_does_not_hold_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = checked(row(same("the answer", 41, 42), same("two", 2, 2)), monkeypatch)
    assert not wrong.ok
    assert wrong.wrong == ["the answer: 41 for 42: 0, not in [1, 1]"]
    assert [each["ok"] for each in wrong.as_dict()["checks"]] == [False, True]
    failed = checked(row(same("two", 2, 2), UserError("no such thing")), monkeypatch)
    assert failed.wrong == ["UserError: no such thing"]
    assert "MISS" in str(failed)


@pytest.mark.parametrize("quick", [False, True])
def test_a_mean_on_the_wrong_side_counts_where_there_was_training(
    quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Measured("score", [0.5, 0.7], "labels", [0.6, 0.7], wanted="above")
    own = checked(row(found), monkeypatch, quick)
    assert own.ok == quick
    (told,) = own.as_dict()["figures"]
    assert (told["lead"], told["wanted"], told["seen"]) == (pytest.approx(-0.05), "above", False)
    assert checked(row(Measured("loss", [1], "x", [2], wanted="below")), monkeypatch).ok
    assert checked(row(Measured("score", [0.1], "x", [0.9])), monkeypatch).ok


def test_a_row_is_asked_once_where_its_figures_are_kept_and_again_where_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(number: str, *came) -> Row:
        def run(ground: Ground):
            asked.append(number)
            yield from came

        return Row(number, number, "Is it so?", "somebody", run, alone=True)

    figure = Measured("score", [0.5, 0.7], "labels", [0.4, 0.7], wanted="above", over="texts")
    rows = [
        noted("C1", same("two", 2, 2), figure, below("small", 1, 2)),
        noted("C2", same("two", 2, 3)),
    ]
    monkeypatch.setattr(checking, "made", lambda folder, quick: Ground(folder, quick))
    monkeypatch.setattr(
        checking, "chosen", lambda names: [each for each in rows if each.number in names]
    )
    first, second, other = (
        list(checking.check_all(rows, quick, [].append, tmp_path)) for quick in (False, False, True)
    )
    assert asked == ["C1", "C2", "C2", "C1", "C2"]
    assert [each.ok for each in first] == [each.ok for each in second] == [True, False]
    assert [each.quick for each in other] == [True, True]
    for each, again in zip(first, second, strict=True):
        assert again.as_dict() == {**each.as_dict(), "seconds": again.seconds}


def test_whoever_stops_a_check_stops_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted):
        checked(row(Interrupted(2, 5, None)), monkeypatch)


def test_one_seed_has_no_interval() -> None:
    told = Measured("score", [0.5], "labels", [0.25]).as_dict()
    assert (told["interval"], told["interval_of_lead"], told["lead"]) == (None, None, 0.25)


def test_rows_in_a_document_and_in_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Measured("score", [0.5, 0.7], "labels", [0.6, 0.7], wanted="above")
    own = [checked(row(found, same("two", 2, 2)), monkeypatch)]
    write_checks(own, tmp_path / "small.md")
    text = (tmp_path / "small.md").read_text()
    assert "1 of 1 hold" in text
    assert "above: **not seen**" in text
    draw(own, tmp_path / "leads.png")
    assert (tmp_path / "leads.png").stat().st_size > 1000


def test_a_row_may_be_asked_in_another_process(tmp_path: Path) -> None:
    ask = pickle.loads(pickle.dumps(partial(checking.check, Ground(tmp_path, quick=True))))
    found = ask("C16")
    assert pickle.loads(pickle.dumps(found)).as_dict() == found.as_dict()
    assert found.ok, found.wrong


def test_a_check_from_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "made", lambda folder, quick: Ground(folder, quick))
    result = invoke("--quick", "C16", "--json")
    (told,) = json.loads(result.stdout)["rows"]
    assert (result.exit_code, told["id"], told["ok"], told["quick"]) == (0, "C16", True, True)
    wrong = row(same("the answer", 41, 42), number="C16")
    monkeypatch.setattr(checking, "chosen", lambda names: [wrong])
    result = invoke("--quick", "C16")
    assert result.exit_code == 1
    assert "MISS: the answer" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--check", "--seeds", "3"], "leave --seeds out"),
        (["--quick"], "only --check knows it: leave --quick out"),
        (["--document", "a.md"], "leave --document out"),
        (["--table", "a-model"], "leave a-model out"),
        (["--check", "C99"], "there is no row 'C99'"),
    ],
)
def test_what_does_not_go_together_is_said(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["compress", *words])
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)
