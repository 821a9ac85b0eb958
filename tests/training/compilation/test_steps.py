"""Steps are compiled from the step on at which a trial has ended well."""

from dataclasses import dataclass, field

import pytest
from small_recipe import small

from bertwright.machine.compiler import Uncompilable
from bertwright.training.clock import BudgetClock, Clock, Journal, Place
from bertwright.training.compilation import steps as steps_module
from bertwright.training.compilation.kinds import StepKinds
from bertwright.training.compilation.steps import COMPILE, COMPILE_FROM, Compilation, CompiledSteps
from bertwright.training.compilation.trial import Outcome
from bertwright.training.compilation.verdicts import Verdict
from bertwright.training.distributed import ALONE, Processes

ONE_PHASE = "phases=[{objectives: {masked: {}}}]"

AGREES, DIFFERS = Verdict(True), Verdict(False, "the gradient of x is off by 300.0%")


@dataclass
class EndsAfter:
    """A trial that ends after so many questions about it."""

    questions: int
    result: Outcome
    closed: bool = False

    def outcome(self) -> Outcome | None:
        self.questions -= 1
        return None if self.questions >= 0 else self.result

    def close(self) -> None:
        self.closed = True


@dataclass
class CountsCompilations:
    """A job of which nothing but its compilation is looked at."""

    compilations: int = 0
    processes: Processes = ALONE

    def compile(self) -> None:
        self.compilations += 1


@dataclass
class Run:
    """A run of steps, with or without a trial beside it."""

    trial: EndsAfter | None
    journal: Journal = field(default_factory=Journal)
    clock: Clock = field(default_factory=lambda: Clock(100))
    at_any_cost: bool = True
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kinds = StepKinds(small("modern", ONE_PHASE), 120, "float32", threads=1)
        self.job = CountsCompilations()
        self.trials = 0
        self.steps = CompiledSteps(
            Compilation(
                self.kinds,
                self.journal,
                self.clock,
                ALONE,
                self.lines.append,
                self._start if self.trial else None,
                self.at_any_cost,
            )
        )
        self.steps.attach(self.job)

    def _start(self) -> EndsAfter:
        self.trials += 1
        return self.trial

    def compiled_steps(self, first: int = 0, last: int = 8) -> list[int]:
        compiled = []
        for step in range(first, last):
            self.steps.before_step(Place(step, step / 100))
            if self.steps.compiled:
                compiled.append(step)
        return compiled

    def decisions(self) -> dict[str, object]:
        return {entry["decision"]: entry["value"] for entry in self.journal.entries}


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "bertwright"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setattr(steps_module, "verdict_on", lambda job, place: AGREES)


def kind() -> str:
    return Run(None).kinds.at(Place(0, 0.0))


def test_without_a_trial_all_steps_are_compiled() -> None:
    run = Run(None)
    assert run.compiled_steps() == list(range(8))
    assert run.job.compilations == 1
    assert not run.lines


def test_training_goes_on_uncompiled_until_a_trial_has_ended_well() -> None:
    run = Run(EndsAfter(3, Outcome({kind(): AGREES})))
    assert run.compiled_steps() == [3, 4, 5, 6, 7]
    assert run.job.compilations == 1
    assert run.trial.closed
    assert run.decisions()[COMPILE_FROM] == 3
    assert "compiled from step 3 on" in run.lines[0]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome({kind(): DIFFERS}), "miscompiles this step: the gradient of x is off by 300.0%"),
        (Outcome(failure="no g++"), "cannot be compiled: no g++"),
    ],
)
def test_where_a_trial_ends_badly_nothing_is_compiled(outcome: Outcome, reason: str) -> None:
    run = Run(EndsAfter(2, outcome))
    assert run.compiled_steps() == []
    assert run.decisions()[COMPILE] is False
    (line,) = run.lines
    assert reason in line
    assert line.endswith("training goes on uncompiled")


def test_what_is_known_to_be_wrong_is_not_tried_again() -> None:
    assert Run(EndsAfter(0, Outcome({kind(): DIFFERS}))).compiled_steps() == []
    for trial in (EndsAfter(0, Outcome({kind(): AGREES})), None):
        again = Run(trial)
        assert again.compiled_steps() == []
        assert again.trials == 0
        assert "the gradient of x" in again.lines[0]


def test_what_is_known_to_be_right_is_compiled_at_once() -> None:
    first = Run(EndsAfter(2, Outcome({kind(): AGREES})))
    first.compiled_steps()
    first.kinds.note_warm()
    again = Run(EndsAfter(2, Outcome()))
    assert again.compiled_steps() == list(range(8))
    assert again.trials == 0


def test_a_resumed_run_compiles_from_the_same_step_on() -> None:
    run = Run(EndsAfter(3, Outcome({kind(): AGREES})))
    whole = run.compiled_steps()
    for first in (0, 2, 3, 5):
        resumed = Run(EndsAfter(1, Outcome()), journal=run.journal)
        assert resumed.compiled_steps(first) == [step for step in whole if step >= first]
        assert resumed.trials == 0


def test_a_first_step_that_differs_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "verdict_on", lambda job, place: DIFFERS)
    with pytest.raises(Uncompilable, match=r"the gradient of x is off by 300.0%"):
        Run(None).compiled_steps()


def test_whatever_compiling_raises_is_no_end_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: object, place: Place) -> Verdict:
        raise PermissionError(13, "Permission denied", "/cache")

    monkeypatch.setattr(steps_module, "verdict_on", fail)
    with pytest.raises(Uncompilable, match=r"cannot be compiled: .*Permission denied: '/cache'"):
        Run(None).compiled_steps()


@pytest.mark.parametrize(("left", "repays"), [(1000.0, True), (20.0, False)])
def test_under_a_budget_compiled_steps_must_repay(left: float, repays: bool) -> None:
    clock = BudgetClock(1000.0, started=0.0, now=lambda: 1000.0 - left)
    outcome = Outcome({kind(): AGREES}, compiled_share=0.8)
    run = Run(EndsAfter(2, outcome), clock=clock, at_any_cost=False)
    assert run.compiled_steps() == (list(range(2, 8)) if repays else [])
    assert ("would not repay in the 20 s that are left" in run.lines[0]) != repays


def test_a_run_that_no_other_process_can_build_is_compiled_here() -> None:
    run = Run(EndsAfter(2, Outcome(failure="no such objective", unbuildable=True)))
    assert run.compiled_steps() == [2, 3, 4, 5, 6, 7]


def test_a_trial_ends_with_its_run() -> None:
    run = Run(EndsAfter(100, Outcome()))
    run.compiled_steps()
    run.steps.close()
    assert run.trial.closed
