"""The clock of a run: how far it is, by steps or by time.

Schedules and phases follow *progress*, a number from 0 to 1 over the whole run. A plan says that
from ``step`` on, progress grows evenly from ``progress`` so as to reach 1 after ``total`` steps.
With a number of steps there is one plan. With a budget of seconds the clock measures the speed and
plans anew now and then, so that progress reaches 1 as the time is over. Every plan is journalled
before a step uses it and is followed again on resume, so a resumed run takes the same decisions for
the steps that were planned.
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

from bertwright.errors import UserError
from bertwright.files import full_disk_named
from bertwright.training.distributed import ALONE, Processes

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

UNKNOWN_TOTAL = 10**6
"""The first plan under a budget, before anything is measured: progress stays near 0."""


def seconds_of(budget: str) -> float:
    """The seconds in a text such as ``90s``, ``20m`` or ``1.5h``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", budget)
    if match is None or float(match[1]) == 0:
        raise UserError(f"--budget {budget}: write a time such as 90s, 20m or 1.5h")
    return float(match[1]) * UNITS[match[2]]


@dataclass(frozen=True)
class Place:
    """Where in a run a step is.

    Attributes:
        step: steps done before it.
        progress: of the whole run, 0 to 1.
        phase: index of the phase.
        phase_progress: of the phase, 0 to 1.
        rows: rows of all processes drawn before it.
        middle: progress halfway through the step, where the learning rate is taken.
    """

    step: int
    progress: float
    phase: int = 0
    phase_progress: float = 0.0
    rows: int = 0
    middle: float = 0.0


When = Callable[[Place, Place], bool]
"""Whether something is due between two neighbouring places."""


def never(before: Place, after: Place) -> bool:
    """What is not wanted is never due."""
    return False


def every(steps: int) -> When:
    """After each multiple of ``steps`` steps."""
    return lambda before, after: after.step % steps == 0


def times(number: int) -> When:
    """``number`` times, evenly over the run, the end excluded."""
    parts = range(1, number + 1)
    return lambda before, after: any(
        before.progress < part / (number + 1) <= after.progress for part in parts
    )


class Journal:
    """Decisions of a run, one JSON object a line, each on the disk before it is used.

    Without a file it is kept in memory only.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.entries: list[dict[str, Any]] = []
        if file is not None and file.exists():
            self.entries = _whole_lines(file)

    def add(self, entry: dict[str, Any]) -> None:
        """Append one decision."""
        self.entries.append(entry)
        if self._file is not None:
            with full_disk_named(self._file), open(self._file, "a", encoding="utf-8") as opened:
                opened.write(json.dumps(entry) + "\n")
                opened.flush()
                os.fsync(opened.fileno())

    def decide(self, name: str, make: Callable[[], Any]) -> Any:
        """The decision of that name, taken now if it was not taken before."""
        for entry in reversed(self.entries):
            if entry.get("decision") == name:
                return entry["value"]
        return self.revise(name, make())

    def revise(self, name: str, value: Any) -> Any:
        """Take a decision, whatever it was before."""
        self.add({"decision": name, "value": value})
        return value


@dataclass(frozen=True)
class Plan:
    """From ``step`` on: ``progress`` there, 1 after ``total`` steps, a new plan at ``until``."""

    step: int
    progress: float
    total: int
    until: int

    def at(self, step: int) -> float:
        """Progress at a step that this plan covers."""
        if step >= self.total:
            return 1.0
        return self.progress + (1 - self.progress) * (step - self.step) / (self.total - self.step)


class Clock:
    """Progress by steps.

    ``shares`` are the shares of progress of the phases, in order; they are scaled to a sum of 1.
    ``started`` is the reading of ``now`` from which the time spent is counted.
    """

    def __init__(
        self,
        steps: int,
        shares: Sequence[float] = (1.0,),
        started: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plans = [Plan(0, 0.0, steps, steps)]
        whole = sum(shares)
        self._ends = [end / whole for end in accumulate(shares)]
        self._now = now
        self._started = now() if started is None else started
        self._before = 0.0
        self.budget: float | None = None
        self.closing = 0.0
        """Seconds that are left for what follows the last step."""

    def place(self, step: int, rows: int = 0) -> Place:
        """The place of a step."""
        progress = self._plan(step).at(step)
        # The tolerance keeps a boundary such as 9/10 on its side of a rounded sum of shares.
        phase = min(bisect_right(self._ends, progress + 1e-9), len(self._ends) - 1)
        start = self._ends[phase - 1] if phase else 0.0
        within = (progress - start) / (self._ends[phase] - start)
        middle = (progress + self._plan(step).at(step + 1)) / 2
        return Place(step, progress, phase, min(max(within, 0.0), 1.0), rows, middle)

    def total(self, step: int) -> int:
        """The steps of the whole run, as planned at a step."""
        return self._plan(step).total

    def finished(self, step: int) -> bool:
        """Whether the run has no such step."""
        return step >= self.total(step)

    def end(self, step: int) -> None:
        """Let the run have no step from this one on."""
        self.plans.append(Plan(step, 1.0, step, step))

    def elapsed(self) -> float:
        """Seconds spent on this run, those before a resume included."""
        return self._before + self._now() - self._started

    def resume(self, seconds: float) -> None:
        """Count the seconds that the run spent before this process continued it."""
        self._before = seconds

    def observe(self, step: int) -> None:
        """Called before each step; a number of steps leaves nothing to measure."""

    def change_speed(self, step: int) -> None:
        """Expect that steps from this one on take another time."""

    @contextmanager
    def pause(self) -> Generator[None]:
        """Around what is not a step: evaluations and checkpoints."""
        yield

    def _plan(self, step: int) -> Plan:
        return self.plans[bisect_right(self.plans, step, key=lambda plan: plan.step) - 1]


class BudgetClock(Clock):
    """Progress by time: 1 is reached as ``budget`` seconds are over.

    The first step of a phase is not measured (it compiles). What evaluations and checkpoints took
    so far is expected of the remaining progress too.
    """

    def __init__(
        self,
        budget: float,
        shares: Sequence[float] = (1.0,),
        started: float | None = None,
        now: Callable[[], float] = time.monotonic,
        journal: Journal | None = None,
        processes: Processes = ALONE,
    ) -> None:
        super().__init__(UNKNOWN_TOTAL, shares, started, now)
        self.budget = self._seconds = budget
        self.closing = min(10.0, 0.02 * budget)
        self._journal = journal or Journal()
        self._processes = processes
        recorded = [Plan(**entry) for entry in self._journal.entries if "total" in entry]
        self.plans.extend(processes.share(recorded))
        self._paused = 0.0
        self._phase: int | None = None
        self._entered: int | None = None
        self._window: tuple[int, float] | None = None

    @contextmanager
    def pause(self) -> Generator[None]:
        began = self._now()
        yield
        self._paused += self._now() - began

    def observe(self, step: int) -> None:
        phase = self.place(step).phase
        if phase != self._phase:
            self._entered = step if self._phase is not None or step == 0 else None
            self._phase, self._window = phase, None
            return
        busy = self.elapsed() - self._paused
        if self._window is None:
            self._window = (step, busy)
        elif self._due(step):
            window_step, window_busy = self._window
            seconds_per_step = (busy - window_busy) / (step - window_step)
            self._follow(self._processes.share(self._plan_at(step, seconds_per_step)))
            self._window = (step, busy)

    def change_speed(self, step: int) -> None:
        self._entered, self._window = step, None

    def _due(self, step: int) -> bool:
        """At the end of a plan, and after the second step of a phase, whose speed is unknown; never
        where the run has ended."""
        if step <= self.plans[-1].step or self.finished(step):
            return False
        return step >= self.plans[-1].until or step - 2 == self._entered

    def _plan_at(self, step: int, seconds_per_step: float) -> Plan:
        progress = self.place(step).progress
        pauses = self._paused / progress * (1 - progress) if progress > 0.05 else 0.0
        remaining = self._seconds - self.elapsed() - self.closing
        remaining -= min(pauses, 0.1 * max(remaining, 0.0))
        total = step + max(0, round(remaining / seconds_per_step))
        hundredth = int(0.01 * self._seconds / seconds_per_step)
        # Plans come at doubling distances at first, then every hundredth of the budget.
        until = step + max(1, min(hundredth, step - (self._entered or 0)))
        return Plan(step, progress, total, until)

    def _follow(self, plan: Plan) -> None:
        self._journal.add(asdict(plan))
        self.plans.append(plan)


def _whole_lines(file: Path) -> list[dict[str, Any]]:
    """The entries of a journal; a last line that a kill cut short is removed from the file."""
    entries: list[dict[str, Any]] = []
    whole = 0
    with open(file, "rb") as opened:
        for line in opened:
            try:
                entry = json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n"):  # the next entry would be glued to it
                break
            entries.append(entry)
            whole += len(line)
    os.truncate(file, whole)
    return entries
