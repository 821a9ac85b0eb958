"""Compiling the steps of a run: at its beginning, or in the middle of it when a trial has ended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertwright.machine.compiler import Uncompilable, compiler_version, obstacle_of
from bertwright.training.clock import Clock, Journal, Place
from bertwright.training.compilation.agreement import verdict_on
from bertwright.training.compilation.kinds import StepKinds
from bertwright.training.compilation.payoff import COLD_SECONDS, warm_seconds
from bertwright.training.compilation.trial import Outcome, Trial
from bertwright.training.compilation.verdicts import Verdicts
from bertwright.training.distributed import Processes
from bertwright.training.loop import Job
from bertwright.training.procedure import Procedure

COMPILE, COMPILE_FROM = "compile", "compile from"
"""Decisions in the journal: whether steps are compiled, and from which step on."""


@dataclass(frozen=True)
class Compilation:
    """How the steps of a run come to be compiled.

    Attributes:
        trial: starts a trial beside the training; None compiles before the first step.
        whatever_it_repays: compile even where little of the budget is left.
    """

    kinds: StepKinds
    journal: Journal
    clock: Clock
    processes: Processes
    say: Callable[[str], None]
    trial: Callable[[], Trial] | None
    whatever_it_repays: bool


class CompiledSteps(Procedure):
    """Compiles the steps of a job from the step on that a trial has ended at, or that the journal
    names; the first compiled step of every kind is compared with the uncompiled one before.

    Errors: Uncompilable, before a step, where the two differ or the compiler fails.
    """

    name = "compilation"

    def __init__(self, settings: Compilation) -> None:
        self._settings = settings
        self._verdicts = Verdicts()
        self._agreeing: set[str] = set()
        self._job: Job[Any] | None = None
        self._from_step = self._journalled_step()
        self._trial: Trial | None = None
        self.compiled = False

    def _journalled_step(self) -> int | None:
        settings = self._settings
        entries = settings.journal.entries
        steps = [e["value"] for e in entries if e.get("decision") == COMPILE_FROM]
        return settings.processes.share(steps[-1] if steps else None)

    def attach(self, job: Job[Any]) -> None:
        """Name the job whose steps are to be compiled, and start a trial where it is not yet known
        what compiled steps compute."""
        self._job = job
        settings = self._settings
        kinds = settings.kinds
        verdicts = [self._verdicts.of(kinds.at(place)) for place in kinds.places()]
        verdicts = settings.processes.share(verdicts)
        wrong = next((v.difference for v in verdicts if v is not None and not v.agrees), None)
        if wrong is not None:
            self._reject(miscompiled(wrong))
        elif self._from_step is None:
            ready = all(verdicts) and settings.processes.share(kinds.are_warm())
            if ready or settings.trial is None:
                self._from_step = 0
            elif settings.processes.first:
                self._trial = settings.trial()

    def _reject(self, reason: str) -> None:
        """Let all further steps be uncompiled."""
        self._from_step = None
        self._settings.journal.revise(COMPILE, False)
        self._settings.say(f"{reason}; training goes on uncompiled")

    def before_step(self, place: Place) -> None:
        if self._from_step is None:
            self._from_step = self._step_after_trial(place)
        if self._from_step is None or place.step < self._from_step:
            return
        if not self.compiled:
            assert self._job is not None
            self._job.compile()
            self._settings.clock.change_speed(place.step)
            self.compiled = True
        self._require_agreement(place)

    def close(self) -> None:
        """End a trial that is still running."""
        if self._trial is not None:
            self._trial.close()
            self._trial = None

    def _step_after_trial(self, place: Place) -> int | None:
        """Return the step at hand if a trial has just ended well, else None."""
        settings = self._settings
        outcome = None if self._trial is None else self._trial.outcome()
        outcome = settings.processes.share(outcome)
        if outcome is None:
            return None
        self.close()
        for kind, verdict in outcome.verdicts.items():
            self._verdicts.add(kind, verdict)
        if (obstacle := self._obstacle(outcome)) is not None:
            self._reject(obstacle)
            return None
        settings.journal.revise(COMPILE_FROM, place.step)
        settings.say(
            f"steps are compiled from step {place.step:,} on; {compiler_version()} computes what "
            f"the uncompiled step does"
        )
        return place.step

    def _obstacle(self, outcome: Outcome) -> str | None:
        """Return why steps are not to be compiled, None where they are."""
        settings = self._settings
        if outcome.difference is not None:
            return miscompiled(outcome.difference)
        if outcome.failure is not None and not outcome.unbuildable:
            return f"the step cannot be compiled: {outcome.failure}"
        if settings.whatever_it_repays or settings.clock.budget is None:
            return None
        left = settings.clock.budget - settings.clock.elapsed()
        needed = COLD_SECONDS if outcome.unbuildable else warm_seconds(settings.kinds)
        if (1 - outcome.compiled_share) * left <= needed * outcome.slowdown:
            return f"compiled steps would not repay in the {left:,.0f} s that are left"
        return None

    def _require_agreement(self, place: Place) -> None:
        kind = self._settings.kinds.at(place)
        if kind not in self._agreeing:
            assert self._job is not None
            require_agreement(self._job, place, kind, self._verdicts)
            self._agreeing.add(kind)


def require_agreement(job: Job[Any], place: Place, kind: str, verdicts: Verdicts) -> None:
    """Compare the first compiled step of a kind with the uncompiled one, unless it was before.

    Errors: Uncompilable where the two differ, and for whatever compiling raises.
    """
    verdict = verdicts.of(kind)
    if verdict is None:
        try:
            verdict = job.processes.share(verdict_on(job, place))
        except Exception as error:
            raise Uncompilable(obstacle_of(error)) from error
        verdicts.add(kind, verdict)
    if not verdict.agrees:
        raise Uncompilable(miscompiled(verdict.difference))


def miscompiled(difference: str) -> str:
    """Return the sentence that says how a compiled step differs, and which compiler made it."""
    return f"{compiler_version()} miscompiles this step: {difference}"
