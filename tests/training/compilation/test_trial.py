"""A trial compiles in a process of its own, whatever happens there."""

import sys
import time
from pathlib import Path

import pytest
from small_recipe import small

from bertwright.files import write_text
from bertwright.text.shards import Data
from bertwright.training.clock import Place
from bertwright.training.compilation.kinds import StepKinds
from bertwright.training.compilation.trial import Outcome, Trial, TrialRun, _outcome_of
from bertwright.training.run_folder import fitted

ONE_PHASE = "phases=[{objectives: {masked: {}}}]"


@pytest.fixture
def run(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialRun:
    """A small run, with empty caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "bertwright"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    recipe = fitted(small("modern", "encoder.depth.layers=1", ONE_PHASE), data)
    write_text(tmp_path / "recipe.yaml", recipe.as_yaml())
    return TrialRun(str(tmp_path / "recipe.yaml"), str(data.path), "float32", 1)


@pytest.mark.compiler
def test_a_trial_finds_that_compiled_steps_agree(run: TrialRun, data: Data) -> None:
    with Trial(run) as trial:
        outcome = trial.outcome(wait=True)
    assert outcome.failure is None
    recipe = fitted(small("modern", "encoder.depth.layers=1", ONE_PHASE), data)
    kinds = StepKinds(recipe, data.tokenizer.size, "float32", threads=1)
    assert outcome.verdicts.keys() == {kinds.at(Place(0, 0.0))}
    assert outcome.difference is None
    assert 0 < outcome.compiled_share < 10
    assert outcome.slowdown >= 1
    assert kinds.are_warm()


def test_a_compiler_that_fails_is_a_failure_of_the_trial(
    run: TrialRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    with Trial(run) as trial:
        outcome = trial.outcome(wait=True)
    assert "/bin/false" in (outcome.failure or "")
    assert "\n" not in outcome.failure
    assert not outcome.unbuildable


def test_a_recipe_that_the_process_does_not_know_is_no_fault_of_the_compiler(
    run: TrialRun,
) -> None:
    file = Path(run.recipe_file)
    file.write_text(file.read_text().replace("kind: masked", "kind: of-my-own"))
    with Trial(run) as trial:
        outcome = trial.outcome(wait=True)
    assert outcome.unbuildable
    assert "of-my-own" in outcome.failure


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "ended by signal 4"),
        ("raise SystemExit('the last line')", "the last line"),
        ("raise SystemExit(3)", "exit code 3"),
        ("", "exit code 0"),
    ],
)
def test_however_a_trial_ends_there_is_an_outcome(
    run: TrialRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    failure: str,
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with Trial(run) as trial:
        assert failure in trial.outcome(wait=True).failure


def test_a_trial_that_hangs_is_ended_with_its_run(
    run: TrialRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with Trial(run) as trial:
        time.sleep(0.1)
        assert trial.outcome() is None


def test_an_outcome_passes_through_json() -> None:
    answer = {"verdicts": {"a": {"agrees": False, "difference": "x"}}, "compiled_share": 0.5}
    outcome = _outcome_of(answer)
    assert outcome.difference == "x"
    assert outcome == Outcome(outcome.verdicts, compiled_share=0.5)
