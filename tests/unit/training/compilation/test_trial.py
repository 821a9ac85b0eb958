"""Trial compilations in a child process, including failures."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from bertwright.core.files import write_text
from bertwright.data.shards.dataset import Dataset
from bertwright.training.clock import Progress
from bertwright.training.compilation.agreement_cache import StepAgreement
from bertwright.training.compilation.step_variants import StepVariants
from bertwright.training.compilation.trial import (
    CompilationTrial,
    CompilationTrialResult,
    CompilationTrialSpec,
    _parse_result,
)
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from small_recipe import small

ONE_PHASE = "phases=[{objectives: {masked: {}}}]"


@pytest.fixture
def run(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompilationTrialSpec:
    """A small run, with empty caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "bertwright"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    recipe = fit_recipe_to_data(small("modern", "encoder.depth.layers=1", ONE_PHASE), data)
    write_text(tmp_path / "recipe.yaml", recipe.as_yaml())
    return CompilationTrialSpec(str(tmp_path / "recipe.yaml"), str(data.path), "float32", 1)


@pytest.mark.full
@pytest.mark.compiler
def test_compiled_steps_agree(run: CompilationTrialSpec, data: Dataset) -> None:
    with CompilationTrial(run) as trial:
        result = trial.result(wait=True)
    assert result.failure is None
    recipe = fit_recipe_to_data(small("modern", "encoder.depth.layers=1", ONE_PHASE), data)
    variants = StepVariants(recipe, data.tokenizer.vocab_size, "float32", threads=1)
    assert result.agreements.keys() == {variants.key(Progress(0, 0.0))}
    assert result.difference is None
    assert 0 < result.compiled_time_fraction < 10
    assert result.slowdown >= 1
    assert variants.is_cache_warm()


@pytest.mark.full
def test_a_failing_compiler_fails_the_trial(
    run: CompilationTrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    with CompilationTrial(run) as trial:
        result = trial.result(wait=True)
    assert "/bin/false" in (result.failure or "")
    assert "\n" not in result.failure
    assert not result.build_failed


def test_a_recipe_unknown_to_the_process_is_a_failed_build(
    run: CompilationTrialSpec,
) -> None:
    file = Path(run.recipe_file)
    file.write_text(file.read_text().replace("kind: masked", "kind: user-defined"))
    with CompilationTrial(run) as trial:
        result = trial.result(wait=True)
    assert result.build_failed
    assert "user-defined" in result.failure


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "ended by signal 4"),
        ("raise SystemExit('the last line')", "the last line"),
        ("raise SystemExit(3)", "exit code 3"),
        ("", "exit code 0"),
    ],
)
def test_a_trial_that_crashes_has_a_result(
    run: CompilationTrialSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    failure: str,
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with CompilationTrial(run) as trial:
        assert failure in trial.result(wait=True).failure


def test_a_hanging_trial_is_killed(
    run: CompilationTrialSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with CompilationTrial(run) as trial:
        time.sleep(0.1)
        assert trial.result() is None


def test_a_result_passes_through_json() -> None:
    agreements = {"a": StepAgreement(False, "x")}
    result = CompilationTrialResult(agreements, compiled_time_fraction=0.5)
    assert _parse_result(json.loads(json.dumps(asdict(result)))) == result
    assert result.difference == "x"
