"""Running the checks of compression methods."""

import json
import pickle
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bertwright.core.errors import TrainingInterrupted, UserError
from experiments.__main__ import app
from experiments.analyses.expecting import expect_below, expect_same
from experiments.compressions import run_checks as checking
from experiments.compressions.check import (
    CheckOutcome,
    CompressionCheck,
    MeasuredValue,
    accuracy_claim,
)
from experiments.compressions.checks import all_checks, select_checks
from experiments.compressions.page import plot, write_checks
from experiments.compressions.toy_models import ToyModels


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compressions", *arguments])


def make_check(*results, number: str = "C1") -> CompressionCheck:
    def run(toy: ToyModels):
        for result in results:
            if isinstance(result, Exception):
                raise result
            yield result

    return CompressionCheck(number, "toy-check", "Does it hold?", "a paper", run)


def outcome_of(
    check: CompressionCheck, monkeypatch: pytest.MonkeyPatch, quick: bool = False
) -> CheckOutcome:
    monkeypatch.setattr(checking, "select_checks", lambda names: [check])
    return checking.run_check(ToyModels(Path("none"), quick), check.number)


def test_checks_have_unique_numbers() -> None:
    numbers = [check.number for check in all_checks()]
    assert len(set(numbers)) == len(numbers)
    assert {f"C{n}" for n in range(1, 22)} <= {*numbers}
    assert select_checks(["c21", "meter"]) == [
        check for check in all_checks() if check.number in ("C21", "meter")
    ]
    with pytest.raises(UserError, match="there is no check 'C99'"):
        select_checks(["C99"])


def test_problems_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    check = make_check(expect_same("the answer", 41, 42), expect_same("two", 2, 2))
    outcome = outcome_of(check, monkeypatch)
    assert not outcome.ok
    assert outcome.problems == ["the answer: 41 for 42: 0, not in [1, 1]"]
    assert [item["ok"] for item in outcome.as_dict()["checks"]] == [False, True]
    check = make_check(expect_same("two", 2, 2), UserError("no such thing"))
    outcome = outcome_of(check, monkeypatch)
    assert outcome.problems == ["UserError: no such thing"]
    assert "MISS" in str(outcome)


@pytest.mark.parametrize("quick", [False, True])
def test_opposite_of_the_expected_fails_unless_quick(
    quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, others = [0.5, 0.6, 0.7], [0.61, 0.7, 0.8]
    value = MeasuredValue("score", scores, "labels", others, expected_side="above")
    outcome = outcome_of(make_check(value), monkeypatch, quick)
    assert outcome.ok == quick
    (result,) = outcome.as_dict()["values"]
    assert result["lead"] == pytest.approx(-0.31 / 3)
    assert (result["expected_side"], result["verdict"]) == ("above", "opposite")
    for value in (
        MeasuredValue("loss", scores, "x", others, expected_side="below"),
        MeasuredValue("score", scores[:2], "x", others[:2], expected_side="above"),
        MeasuredValue("score", [0.1], "x", [0.9]),
    ):
        assert outcome_of(make_check(value), monkeypatch).ok


def test_claims_are_decided_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    same, worse = [0.901, 0.899, 0.9], [0.81, 0.79, 0.8]
    verdicts = {
        "seen": accuracy_claim("method", same, "labels", worse),
        "opposite": accuracy_claim("method", worse, "labels", same),
        "no difference": accuracy_claim("method", same, "labels", same[::-1]),
        "invalid design": accuracy_claim("method", [1.0] * 3, "labels", [1.0] * 3),
    }
    for label, value in verdicts.items():
        outcome = outcome_of(make_check(value), monkeypatch)
        assert outcome.ok
        (stored,) = outcome.as_dict()["values"]
        assert stored["verdict"] == label
        assert MeasuredValue.from_dict(stored) == value


def test_passed_checks_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def recorded_check(number: str, *results) -> CompressionCheck:
        def run(toy: ToyModels):
            runs.append(number)
            yield from results

        return CompressionCheck(number, number, "Does it hold?", "a paper", run, is_timed=True)

    value = MeasuredValue(
        "score", [0.5, 0.7], "labels", [0.4, 0.7], expected_side="above", unit="texts"
    )
    checks = [
        recorded_check("C1", expect_same("two", 2, 2), value, expect_below("small", 1, 2)),
        recorded_check("C2", expect_same("two", 2, 3)),
    ]
    monkeypatch.setattr(checking, "train_toy_models", ToyModels)
    monkeypatch.setattr(
        checking, "select_checks", lambda names: [c for c in checks if c.number in names]
    )
    first, second, quick = (
        list(checking.run_checks(checks, is_quick, [].append, tmp_path))
        for is_quick in (False, False, True)
    )
    assert runs == ["C1", "C2", "C2", "C1", "C2"]
    assert [o.ok for o in first] == [o.ok for o in second] == [True, False]
    assert all(outcome.is_quick for outcome in quick)
    for before, after in zip(first, second, strict=True):
        assert after.as_dict() == {**before.as_dict(), "seconds": after.seconds}


def test_interruption_ends_all_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainingInterrupted):
        outcome_of(make_check(TrainingInterrupted(2, 5, None)), monkeypatch)


def test_one_seed_has_no_interval() -> None:
    result = MeasuredValue("score", [0.5], "labels", [0.25]).as_dict()
    assert (result["interval"], result["lead_interval"], result["lead"]) == (None, None, 0.25)


def test_outcomes_are_written_and_plotted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = MeasuredValue("score", [0.5, 0.7], "labels", [0.6, 0.7], expected_side="above")
    outcomes = [outcome_of(make_check(value, expect_same("two", 2, 2)), monkeypatch)]
    write_checks(outcomes, tmp_path / "small.md")
    text = (tmp_path / "small.md").read_text()
    assert "1 of 1 hold" in text
    assert "above: **undecided: 3 seeds would decide**" in text
    plot(outcomes, tmp_path / "leads.png")
    assert (tmp_path / "leads.png").stat().st_size > 1000


def test_checks_run_in_other_processes(tmp_path: Path) -> None:
    run = partial(checking.run_check, ToyModels(tmp_path, is_quick=True))
    outcome = pickle.loads(pickle.dumps(run))("C16")
    assert pickle.loads(pickle.dumps(outcome)).as_dict() == outcome.as_dict()
    assert outcome.ok, outcome.problems


def test_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "train_toy_models", ToyModels)
    result = invoke("C16", "--quick", "--json")
    (outcome,) = json.loads(result.stdout)["checks"]
    assert result.exit_code == 0
    assert (outcome["id"], outcome["ok"], outcome["quick"]) == ("C16", True, True)
    check = make_check(expect_same("the answer", 41, 42), number="C16")
    monkeypatch.setattr(checking, "select_checks", lambda names: [check])
    result = invoke("C16", "--quick")
    assert result.exit_code == 1
    assert "MISS: the answer" in result.stdout
    assert isinstance(invoke("C99").exception, UserError)
