"""Contestants in processes of their own take turns.

A process keeps its own allocator, threads and compiled code, as a user's would; because one waits
while another computes, all of them meet the same weather on the machine. Commands and answers are
lines of JSON over the child's standard input and output; what libraries print there goes to stderr.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self, TextIO

from bertwright.machine.process import synchronise

TURN_SECONDS = 2.0
WARM_UP_STEPS = 3


class Turns:
    """The child's side: waits for a turn, and times its steps."""

    def __init__(self, device: str, commands: TextIO, answers: TextIO) -> None:
        self._device = device
        self._commands = commands
        self._answers = answers
        self._num_steps = 0
        self._marks: list[float] = []
        self.mixed = False
        """Whether steps are of several kinds, of which some take longer than others."""

    def before_step(self) -> None:
        """To be called before every step; returns when the step is wanted.

        Errors: SystemExit when no step will be wanted any more.
        """
        if len(self._marks) == self._num_steps:
            self._next_turn()
        self._marks.append(time.perf_counter())

    def _next_turn(self) -> None:
        if self._num_steps:
            synchronise(self._device)
            print(json.dumps({"seconds": self._seconds_per_step()}), file=self._answers, flush=True)
        command = self._commands.readline()
        if not command:
            raise SystemExit
        self._num_steps, self._marks = json.loads(command)["steps"], []
        synchronise(self._device)

    def _seconds_per_step(self) -> float:
        """The median step; the mean where they are of several kinds, and on a card, since there
        only the last one is waited for."""
        marks = [*self._marks, time.perf_counter()]
        steps = [after - before for before, after in pairwise(marks)]
        alike = self._device == "cpu" and not self.mixed
        return median(steps) if alike else sum(steps) / len(steps)

    @staticmethod
    def over_standard_streams(device: str) -> "Turns":
        """Turns told over stdin and stdout; whatever else prints there goes to stderr."""
        answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return Turns(device, sys.stdin, answers)


class Contestant:
    """The parent's side: a process that makes steps on demand.

    ``program`` is a module or a file, ``settings`` its argument as JSON, ``environment`` the whole
    of its environment.
    """

    def __init__(
        self, program: str | Path, settings: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        # A file does not put its folder, whose names may hide others, into the path of modules.
        where = ["-P", str(program)] if isinstance(program, Path) else ["-m", program]
        self._name = f"{program} {json.dumps(dict(settings))}"
        self._process = subprocess.Popen(
            [sys.executable, *where, json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def seconds_per_step(self, num_steps: int) -> float:
        """Make so many steps, and say how long one took.

        Errors: RuntimeError when the process ended instead; its own words are on stderr.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"steps": num_steps}), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self._name} ended before its turn was over")
        return json.loads(answer)["seconds"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.__exit__(kind, error, traceback)


def in_turns(
    contestants: Mapping[str, Contestant], rounds: int, say: Callable[[str], None]
) -> Iterator[dict[str, float]]:
    """Yield the seconds of a step of every contestant, round by round; each computes for about
    ``TURN_SECONDS`` in its turn."""
    steps: dict[str, int] = {}
    for name, contestant in contestants.items():
        seconds = contestant.seconds_per_step(1)
        if seconds < TURN_SECONDS:
            seconds = contestant.seconds_per_step(WARM_UP_STEPS)
        steps[name] = max(1, round(TURN_SECONDS / seconds))
    for number in range(rounds):
        turns = {name: one.seconds_per_step(steps[name]) for name, one in contestants.items()}
        shown = ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in turns.items())
        say(f"round {number + 1} of {rounds}: {shown}")
        yield turns
