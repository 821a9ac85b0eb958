"""Steps are compiled after a successful trial."""

from dataclasses import dataclass, field

import pytest

from bertwright.runtime.compiler import CompilationError
from bertwright.training.clock import BudgetClock, DecisionLog, Progress, TrainingClock
from bertwright.training.compilation import callback as callback_module
from bertwright.training.compilation.agreement_cache import StepAgreement
from bertwright.training.compilation.callback import (
    COMPILE,
    COMPILE_FROM,
    CompilationCallback,
    CompilationSettings,
)
from bertwright.training.compilation.step_variants import StepVariants
from bertwright.training.compilation.trial import CompilationTrialResult
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup
from small_recipe import small

ONE_PHASE = "phases=[{objectives: {masked: {}}}]"

AGREES, DIFFERS = StepAgreement(True), StepAgreement(False, "the gradient of x is off by 300.0%")


@dataclass
class FakeTrial:
    """A trial that ends after ``num_polls`` calls of result."""

    num_polls: int
    final_result: CompilationTrialResult
    closed: bool = False

    def result(self) -> CompilationTrialResult | None:
        self.num_polls -= 1
        return None if self.num_polls >= 0 else self.final_result

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeJob:
    """A job that counts its compilations."""

    compilations: int = 0
    process_group: ProcessGroup = SINGLE_PROCESS

    def compile(self) -> None:
        self.compilations += 1


@dataclass
class Run:
    """A run of steps, with or without a background trial."""

    trial: FakeTrial | None
    decision_log: DecisionLog = field(default_factory=DecisionLog)
    clock: TrainingClock = field(default_factory=lambda: TrainingClock(100))
    always_compile: bool = True
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.variants = StepVariants(small("modern", ONE_PHASE), 120, "float32", threads=1)
        self.job = FakeJob()
        self.num_trials = 0
        self.callback = CompilationCallback(
            CompilationSettings(
                self.variants,
                self.decision_log,
                self.clock,
                SINGLE_PROCESS,
                self.lines.append,
                self._start if self.trial else None,
                self.always_compile,
            )
        )
        self.callback.attach(self.job)

    def _start(self) -> FakeTrial:
        self.num_trials += 1
        return self.trial

    def compiled_steps(self, first: int = 0, last: int = 8) -> list[int]:
        compiled = []
        for step in range(first, last):
            self.callback.before_step(Progress(step, step / 100))
            if self.callback.is_compiled:
                compiled.append(step)
        return compiled

    def decisions(self) -> dict[str, object]:
        return {entry["decision"]: entry["value"] for entry in self.decision_log.entries}


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "bertwright"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setattr(callback_module, "compare_compiled_step", lambda job, progress: AGREES)


def variant() -> str:
    return Run(None).variants.key(Progress(0, 0.0))


def test_without_a_trial_all_steps_are_compiled() -> None:
    run = Run(None)
    assert run.compiled_steps() == list(range(8))
    assert run.job.compilations == 1
    assert not run.lines


def test_training_is_uncompiled_until_a_trial_succeeds() -> None:
    run = Run(FakeTrial(3, CompilationTrialResult({variant(): AGREES})))
    assert run.compiled_steps() == [3, 4, 5, 6, 7]
    assert run.job.compilations == 1
    assert run.trial.closed
    assert run.decisions()[COMPILE_FROM] == 3
    assert "compiled from step 3 on" in run.lines[0]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (
            CompilationTrialResult({variant(): DIFFERS}),
            "miscompiles this step: the gradient of x is off by 300.0%",
        ),
        (CompilationTrialResult(failure="no g++"), "cannot be compiled: no g++"),
    ],
)
def test_nothing_is_compiled_after_a_failed_trial(
    result: CompilationTrialResult, reason: str
) -> None:
    run = Run(FakeTrial(2, result))
    assert run.compiled_steps() == []
    assert run.decisions()[COMPILE] is False
    (line,) = run.lines
    assert reason in line
    assert line.endswith("training continues uncompiled")


def test_a_known_disagreement_is_not_tried_again() -> None:
    assert Run(FakeTrial(0, CompilationTrialResult({variant(): DIFFERS}))).compiled_steps() == []
    for trial in (FakeTrial(0, CompilationTrialResult({variant(): AGREES})), None):
        again = Run(trial)
        assert again.compiled_steps() == []
        assert again.num_trials == 0
        assert "the gradient of x" in again.lines[0]


def test_a_known_agreement_is_compiled_immediately() -> None:
    first = Run(FakeTrial(2, CompilationTrialResult({variant(): AGREES})))
    first.compiled_steps()
    first.variants.mark_cache_warm()
    again = Run(FakeTrial(2, CompilationTrialResult()))
    assert again.compiled_steps() == list(range(8))
    assert again.num_trials == 0


def test_a_resumed_run_compiles_from_the_same_step_on() -> None:
    run = Run(FakeTrial(3, CompilationTrialResult({variant(): AGREES})))
    whole = run.compiled_steps()
    for first in (0, 2, 3, 5):
        resumed = Run(FakeTrial(1, CompilationTrialResult()), decision_log=run.decision_log)
        assert resumed.compiled_steps(first) == [step for step in whole if step >= first]
        assert resumed.num_trials == 0


def test_a_differing_first_step_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_module, "compare_compiled_step", lambda job, progress: DIFFERS)
    with pytest.raises(CompilationError, match=r"the gradient of x is off by 300.0%"):
        Run(None).compiled_steps()


def test_errors_of_compilation_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: object, progress: Progress) -> StepAgreement:
        raise PermissionError(13, "Permission denied", "/cache")

    monkeypatch.setattr(callback_module, "compare_compiled_step", fail)
    with pytest.raises(
        CompilationError, match=r"cannot be compiled: .*Permission denied: '/cache'"
    ):
        Run(None).compiled_steps()


@pytest.mark.parametrize(("remaining", "pays_off"), [(1000.0, True), (20.0, False)])
def test_under_a_budget_compiling_must_pay_off(remaining: float, pays_off: bool) -> None:
    clock = BudgetClock(1000.0, start_time=0.0, now=lambda: 1000.0 - remaining)
    result = CompilationTrialResult({variant(): AGREES}, compiled_time_fraction=0.8)
    run = Run(FakeTrial(2, result), clock=clock, always_compile=False)
    assert run.compiled_steps() == (list(range(2, 8)) if pays_off else [])
    assert ("would not pay off in the remaining 20 s" in run.lines[0]) != pays_off


def test_a_run_that_no_other_process_can_build_is_compiled() -> None:
    run = Run(FakeTrial(2, CompilationTrialResult(failure="no such objective", build_failed=True)))
    assert run.compiled_steps() == [2, 3, 4, 5, 6, 7]


def test_a_trial_ends_with_its_run() -> None:
    run = Run(FakeTrial(100, CompilationTrialResult()))
    run.compiled_steps()
    run.callback.close()
    assert run.trial.closed
