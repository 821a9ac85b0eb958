"""Training progress, measured in steps or in time.

Schedules and phases follow the *fraction* of the run, a number from 0 to 1. A step plan raises the
fraction linearly from ``fraction`` at ``step`` to 1 at ``total_steps``. A run with a fixed number
of steps has one plan. A run with a time budget measures its speed and replans now and then, so that
the fraction reaches 1 when the time is up. Plans are logged before use and replayed on resume, so a
resumed run makes the same decisions for the planned steps.
"""

import json
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.files import explain_full_disk, read_json_lines
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup

SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MAX_BUDGET_SECONDS = 1000 * 365 * SECONDS_PER_UNIT["d"]
"""A thousand years."""

UNKNOWN_TOTAL_STEPS = 10**6
"""Total steps of the first plan under a time budget, large so that the fraction stays near 0."""


def parse_duration(budget: str) -> float:
    """Parse a duration such as ``90s``, ``20m`` or ``1.5h`` into seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", budget)
    seconds = 0.0 if match is None else float(match[1]) * SECONDS_PER_UNIT[match[2]]
    if not 0 < seconds <= MAX_BUDGET_SECONDS:
        raise UserError(f"--budget {budget:.40}: write a time such as 90s, 20m or 1.5h")
    return seconds


def budget_in_seconds(budget: str | float | None) -> float | None:
    """Return a time budget in seconds, given as a number of them or as text; None for none.

    Errors: UserError for a time that is not positive, or longer than a thousand years.
    """
    if budget is None or isinstance(budget, str):
        return None if budget is None else parse_duration(budget)
    if not 0 < budget <= MAX_BUDGET_SECONDS:
        raise UserError(f"budget={budget}: give a positive number of seconds, or a time like '20m'")
    return budget


@dataclass(frozen=True)
class Progress:
    """The position of a step in the run.

    Attributes:
        step: number of completed steps.
        fraction: completed fraction of the run, 0 to 1.
        phase: index of the phase.
        phase_fraction: completed fraction of the phase, 0 to 1.
        num_sequences: sequences read so far, over all processes.
        midpoint: fraction halfway through the step, used for the learning rate.
    """

    step: int
    fraction: float
    phase: int = 0
    phase_fraction: float = 0.0
    num_sequences: int = 0
    midpoint: float = 0.0

    @property
    def end(self) -> float:
        """Return the fraction of the run at the end of the step."""
        return 2 * self.midpoint - self.fraction


Trigger = Callable[[Progress, Progress], bool]
"""Return whether an action is due between two successive positions in the run."""


def never(before: Progress, after: Progress) -> bool:
    """Return False: the action is never due."""
    return False


def every_n_steps(num_steps: int) -> Trigger:
    """Return a trigger that fires every ``num_steps`` steps."""
    return lambda before, after: after.step % num_steps == 0


def evenly_spaced(num_times: int) -> Trigger:
    """Return a trigger that fires ``num_times`` times, evenly spaced, not at the end."""
    parts = range(1, num_times + 1)
    return lambda before, after: any(
        before.fraction < part / (num_times + 1) <= after.fraction for part in parts
    )


class DecisionLog:
    """A log of run decisions, one JSON object per line, flushed before each is used.

    Without a file the log is kept in memory only.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.entries: list[dict[str, Any]] = (
            [] if file is None else read_json_lines(file, truncate=True)
        )

    def add(self, entry: dict[str, Any]) -> None:
        """Append one decision."""
        self.entries.append(entry)
        if self._file is not None:
            with explain_full_disk(self._file), open(self._file, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")
                stream.flush()
                os.fsync(stream.fileno())

    def decide(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return the decision of this name; compute and log it if there is none."""
        for entry in reversed(self.entries):
            if entry.get("decision") == name:
                return entry["value"]
        return self.revise(name, compute())

    def revise(self, name: str, value: Any) -> Any:
        """Log a decision that overrides earlier ones of this name."""
        self.add({"decision": name, "value": value})
        return value


@dataclass(frozen=True)
class StepPlan:
    """A plan that moves from ``fraction`` at ``step`` to 1 at ``total_steps``.

    A new plan is due at step ``valid_until``.
    """

    step: int
    fraction: float
    total_steps: int
    valid_until: int

    def fraction_at(self, step: int) -> float:
        """Return the fraction of the run at a step of this plan."""
        if step >= self.total_steps:
            return 1.0
        return self.fraction + (1 - self.fraction) * (step - self.step) / (
            self.total_steps - self.step
        )


class TrainingClock:
    """A clock for a fixed number of steps.

    ``phase_fractions`` are the relative lengths of the phases; they are scaled to a sum of 1.
    Elapsed time is counted from ``start_time``, a value of ``now()``.
    """

    def __init__(
        self,
        num_steps: int,
        phase_fractions: Sequence[float] = (1.0,),
        start_time: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plans = [StepPlan(0, 0.0, num_steps, num_steps)]
        total = sum(phase_fractions)
        self._phase_ends = [end / total for end in accumulate(phase_fractions)]
        self._now = now
        self._start_time = now() if start_time is None else start_time
        self._earlier_seconds = 0.0
        self.budget_seconds: float | None = None
        self.reserved_seconds = 0.0
        """Seconds of the budget reserved for the work after the last step."""

    def progress(self, step: int, num_sequences: int = 0) -> Progress:
        """Return the progress at a step."""
        fraction = self._plan_of(step).fraction_at(step)
        # The tolerance absorbs rounding in the phase boundaries, such as 9/10.
        phase = min(bisect_right(self._phase_ends, fraction + 1e-9), len(self._phase_ends) - 1)
        start = self._phase_ends[phase - 1] if phase else 0.0
        phase_fraction = (fraction - start) / (self._phase_ends[phase] - start)
        midpoint = (fraction + self._plan_of(step).fraction_at(step + 1)) / 2
        return Progress(
            step, fraction, phase, min(max(phase_fraction, 0.0), 1.0), num_sequences, midpoint
        )

    def total_steps(self, step: int) -> int:
        """Return the total number of steps of the run, as planned at a step."""
        return self._plan_of(step).total_steps

    def is_finished(self, step: int) -> bool:
        """Return whether the run ends before this step."""
        return step >= self.total_steps(step)

    def stop_at(self, step: int) -> None:
        """End the run before this step."""
        self.plans.append(StepPlan(step, 1.0, step, step))

    def elapsed_seconds(self) -> float:
        """Return the seconds spent on this run, including those before a resume."""
        return self._earlier_seconds + self._now() - self._start_time

    def add_earlier_seconds(self, seconds: float) -> None:
        """Add the seconds spent before this process resumed the run."""
        self._earlier_seconds = seconds

    def observe(self, step: int) -> None:
        """Measure the time before each step; does nothing for a fixed number of steps."""

    def restart_timing(self, step: int) -> None:
        """Discard earlier measurements: the speed changes at this step."""

    @contextmanager
    def pause(self) -> Generator[None]:
        """Exclude evaluations and checkpoints from the step timing."""
        yield

    def _plan_of(self, step: int) -> StepPlan:
        return self.plans[bisect_right(self.plans, step, key=lambda plan: plan.step) - 1]


class BudgetClock(TrainingClock):
    """A clock that reaches fraction 1 when ``budget_seconds`` are used up.

    The first step of a phase is not measured, since it compiles. Evaluations and checkpoints are
    assumed to take the same fraction of the remaining time as so far.
    """

    def __init__(
        self,
        budget_seconds: float,
        phase_fractions: Sequence[float] = (1.0,),
        start_time: float | None = None,
        now: Callable[[], float] = time.monotonic,
        decision_log: DecisionLog | None = None,
        process_group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        super().__init__(UNKNOWN_TOTAL_STEPS, phase_fractions, start_time, now)
        self.budget_seconds = self._total_seconds = budget_seconds
        self.reserved_seconds = min(10.0, 0.02 * budget_seconds)
        self._decision_log = decision_log or DecisionLog()
        self._process_group = process_group
        plans = [
            StepPlan(**entry) for entry in self._decision_log.entries if "total_steps" in entry
        ]
        self.plans.extend(process_group.broadcast(plans))
        self._pause_seconds = 0.0
        self._phase: int | None = None
        self._timing_start: int | None = None
        self._window: tuple[int, float] | None = None

    @contextmanager
    def pause(self) -> Generator[None]:
        start = self._now()
        yield
        self._pause_seconds += self._now() - start

    def observe(self, step: int) -> None:
        phase = self.progress(step).phase
        if phase != self._phase:
            self._timing_start = step if self._phase is not None or step == 0 else None
            self._phase, self._window = phase, None
            return
        seconds = self.elapsed_seconds() - self._pause_seconds
        if self._window is None:
            self._window = (step, seconds)
        elif self._needs_plan(step):
            window_step, window_seconds = self._window
            seconds_per_step = (seconds - window_seconds) / (step - window_step)
            plan = self._process_group.broadcast(self._make_plan(step, seconds_per_step))
            self._decision_log.add(asdict(plan))
            self.plans.append(plan)
            self._window = (step, seconds)

    def restart_timing(self, step: int) -> None:
        self._timing_start, self._window = step, None

    def _needs_plan(self, step: int) -> bool:
        """Return whether the plan has run out, or the speed of a new phase is now known."""
        if step <= self.plans[-1].step or self.is_finished(step):
            return False
        return step >= self.plans[-1].valid_until or step - 2 == self._timing_start

    def _make_plan(self, step: int, seconds_per_step: float) -> StepPlan:
        fraction = self.progress(step).fraction
        pauses = self._pause_seconds / fraction * (1 - fraction) if fraction > 0.05 else 0.0
        remaining = self._total_seconds - self.elapsed_seconds() - self.reserved_seconds
        remaining -= min(pauses, 0.1 * max(remaining, 0.0))
        total = step + max(0, round(remaining / seconds_per_step))
        hundredth = int(0.01 * self._total_seconds / seconds_per_step)
        # Replan at doubling intervals at first, then every hundredth of the budget.
        valid_until = step + max(1, min(hundredth, step - (self._timing_start or 0)))
        return StepPlan(step, fraction, total, valid_until)
