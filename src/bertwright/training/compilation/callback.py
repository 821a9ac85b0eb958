"""Compile the steps of a run, at its start or after a background trial."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertwright.runtime.compiler import CompilationError, compilation_failure, compiler_version
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import DecisionLog, Progress, TrainingClock
from bertwright.training.compilation.agreement import compare_compiled_step
from bertwright.training.compilation.agreement_cache import AgreementCache
from bertwright.training.compilation.payoff import COLD_CACHE_SECONDS, warm_cache_seconds
from bertwright.training.compilation.step_variants import StepVariants
from bertwright.training.compilation.trial import CompilationTrial, CompilationTrialResult
from bertwright.training.loop import TrainingJob
from bertwright.training.process_group import ProcessGroup

COMPILE, COMPILE_FROM = "compile", "compile from"
"""Names of logged decisions: whether steps are compiled, and from which step on."""


@dataclass(frozen=True)
class CompilationSettings:
    """The settings of compilation in a run.

    Attributes:
        start_trial: starts a background trial; None compiles before the first step.
        always_compile: compile even if little of the budget is left.
    """

    variants: StepVariants
    decision_log: DecisionLog
    clock: TrainingClock
    process_group: ProcessGroup
    log: Callable[[str], None]
    start_trial: Callable[[], CompilationTrial] | None
    always_compile: bool


class CompilationCallback(Callback):
    """A callback that compiles the steps of a job after a trial, or from a logged step on.

    The first compiled step of every variant is compared with the uncompiled one.
    Errors: CompilationError before a step, if they differ or the compiler fails.
    """

    name = "compilation"

    def __init__(self, settings: CompilationSettings) -> None:
        self._settings = settings
        self._agreements = AgreementCache()
        self._checked_variants: set[str] = set()
        self._job: TrainingJob[Any] | None = None
        self._first_compiled_step = self._logged_first_step()
        self._trial: CompilationTrial | None = None
        self.is_compiled = False

    def _logged_first_step(self) -> int | None:
        settings = self._settings
        entries = settings.decision_log.entries
        steps = [e["value"] for e in entries if e.get("decision") == COMPILE_FROM]
        return settings.process_group.broadcast(steps[-1] if steps else None)

    def attach(self, job: TrainingJob[Any]) -> None:
        """Set the job to compile; start a trial if the agreement of its steps is unknown."""
        self._job = job
        settings = self._settings
        variants = settings.variants
        agreements = settings.process_group.broadcast(
            [self._agreements.get(variants.key(step)) for step in variants.representatives()]
        )
        differences = (a.difference for a in agreements if a is not None and not a.agrees)
        if (difference := next(differences, None)) is not None:
            self._disable(miscompilation_message(difference))
        elif self._first_compiled_step is None:
            ready = all(agreements) and settings.process_group.broadcast(variants.is_cache_warm())
            if ready or settings.start_trial is None:
                self._first_compiled_step = 0
            elif settings.process_group.is_main:
                self._trial = settings.start_trial()

    def _disable(self, reason: str) -> None:
        """Leave all further steps uncompiled."""
        self._first_compiled_step = None
        self._settings.decision_log.revise(COMPILE, False)
        self._settings.log(f"{reason}; training continues uncompiled")

    def before_step(self, progress: Progress) -> None:
        if self._first_compiled_step is None:
            self._first_compiled_step = self._first_step_after_trial(progress)
        if self._first_compiled_step is None or progress.step < self._first_compiled_step:
            return
        if not self.is_compiled:
            assert self._job is not None
            self._job.compile()
            self._settings.clock.restart_timing(progress.step)
            self.is_compiled = True
        self._require_agreement(progress)

    def close(self) -> None:
        """Stop a running trial."""
        if self._trial is not None:
            self._trial.close()
            self._trial = None

    def _first_step_after_trial(self, progress: Progress) -> int | None:
        """Return the current step if a trial just succeeded, else None."""
        settings = self._settings
        result = None if self._trial is None else self._trial.result()
        result = settings.process_group.broadcast(result)
        if result is None:
            return None
        self.close()
        for variant, agreement in result.agreements.items():
            self._agreements.add(variant, agreement)
        if (reason := self._reason_against(result)) is not None:
            self._disable(reason)
            return None
        settings.decision_log.revise(COMPILE_FROM, progress.step)
        settings.log(
            f"compiled from step {progress.step:,} on; {compiler_version()} agrees with the "
            f"uncompiled step"
        )
        return progress.step

    def _reason_against(self, result: CompilationTrialResult) -> str | None:
        """Return the reason not to compile, None if there is none."""
        settings = self._settings
        if result.difference is not None:
            return miscompilation_message(result.difference)
        if result.failure is not None and not result.build_failed:
            return f"the step cannot be compiled: {result.failure}"
        if settings.always_compile or settings.clock.budget_seconds is None:
            return None
        remaining = settings.clock.budget_seconds - settings.clock.elapsed_seconds()
        cost = COLD_CACHE_SECONDS if result.build_failed else warm_cache_seconds(settings.variants)
        if (1 - result.compiled_time_fraction) * remaining <= cost * result.slowdown:
            return f"compiling would not pay off in the remaining {remaining:,.0f} s"
        return None

    def _require_agreement(self, progress: Progress) -> None:
        variant = self._settings.variants.key(progress)
        if variant not in self._checked_variants:
            assert self._job is not None
            require_agreement(self._job, progress, variant, self._agreements)
            self._checked_variants.add(variant)


def require_agreement(
    job: TrainingJob[Any], progress: Progress, variant: str, agreements: AgreementCache
) -> None:
    """Compare the compiled step of a variant with the uncompiled one, unless it is cached.

    Errors: CompilationError if they differ, or compiling fails.
    """
    # The caches of processes may differ, and all processes compare, or none.
    agreement = job.process_group.broadcast(agreements.get(variant))
    if agreement is None:
        try:
            agreement = job.process_group.broadcast(compare_compiled_step(job, progress))
        except Exception as error:
            raise CompilationError(compilation_failure(error)) from error
        agreements.add(variant, agreement)
    if not agreement.agrees:
        raise CompilationError(miscompilation_message(agreement.difference))


def miscompilation_message(difference: str) -> str:
    """Return the message for a compiled step that differs."""
    return f"{compiler_version()} miscompiles this step: {difference}"
