"""Interleaved timing of processes.

Each process has its own allocator, threads and compiled code. One process waits while another
computes, so all run under the same conditions. Commands and replies are lines of JSON over the
child's standard input and output; anything that libraries print goes to stderr.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self, TextIO

from bertwright.runtime.process import synchronise


class StepTimer:
    """The child's side, which waits for commands and times the steps."""

    def __init__(self, device: str, commands: TextIO, replies: TextIO) -> None:
        self._device = device
        self._commands = commands
        self._replies = replies
        self._num_steps = 0
        self._marks: list[float] = []
        self.has_mixed_steps = False
        """True if steps differ in kind, so that some take longer."""

    def before_step(self) -> None:
        """Wait until the next step is requested; call it before every step.

        Raises SystemExit when no more steps are requested.
        """
        if len(self._marks) == self._num_steps:
            self._wait_for_command()
        self._marks.append(time.perf_counter())

    def _wait_for_command(self) -> None:
        if self._num_steps:
            synchronise(self._device)
            print(json.dumps({"seconds": self._seconds_per_step()}), file=self._replies, flush=True)
        command = self._commands.readline()
        if not command:
            raise SystemExit
        self._num_steps, self._marks = json.loads(command)["steps"], []
        synchronise(self._device)

    def _seconds_per_step(self) -> float:
        """Return the median time per step.

        The mean is used if steps differ in kind, and on a GPU, where only the last step is
        synchronised.
        """
        marks = [*self._marks, time.perf_counter()]
        steps = [after - before for before, after in pairwise(marks)]
        is_uniform = self._device == "cpu" and not self.has_mixed_steps
        return median(steps) if is_uniform else sum(steps) / len(steps)

    @staticmethod
    def from_standard_streams(device: str) -> "StepTimer":
        """Return a timer over stdin and stdout; other output is redirected to stderr."""
        replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return StepTimer(device, sys.stdin, replies)


class TimedProcess:
    """The parent's side: a process that runs steps on demand.

    ``program`` is a module or a file, ``settings`` its argument as JSON, ``environment`` its
    complete environment.
    """

    def __init__(
        self, program: str | Path, settings: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        # -P keeps the folder of a file, whose names may shadow modules, out of the path.
        target = ["-P", str(program)] if isinstance(program, Path) else ["-m", program]
        self._name = f"{program} {json.dumps(dict(settings))}"
        self._process = subprocess.Popen(
            [sys.executable, *target, json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def seconds_per_step(self, num_steps: int) -> float:
        """Run steps and return the seconds per step.

        Raises RuntimeError if the process ended instead; its error output is on stderr.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"steps": num_steps}), file=self._process.stdin, flush=True)
            reply = self._process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if not reply:
            raise RuntimeError(f"{self._name} ended during its round")
        return json.loads(reply)["seconds"]

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


def time_processes(
    programs: Sequence[tuple[str | Path, Mapping[str, Any]]], num_steps: int, num_rounds: int
) -> list[list[float]]:
    """Return the seconds per step of each program and round, after a warm-up round."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(TimedProcess(program, settings, os.environ))
            for program, settings in programs
        ]
        rounds = [
            [process.seconds_per_step(num_steps) for process in processes]
            for _ in range(num_rounds + 1)
        ]
    return [list(times) for times in zip(*rounds[1:], strict=True)]
