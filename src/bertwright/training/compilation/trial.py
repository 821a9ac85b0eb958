"""A trial compilation in a process of its own, beside the training that waits for it.

The process builds the step of a run once more, compiles it into the cache of PyTorch's compiler,
and compares every kind of step with the uncompiled one. Whatever goes wrong there (no compiler, one
that fails or hangs, a folder that cannot be written to, code that crashes) happens to that process.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from bertwright.axes import Precision
from bertwright.errors import UserError
from bertwright.machine.compiler import raised_by_compiler
from bertwright.machine.process import tune_process
from bertwright.notices import first_line
from bertwright.training.compilation.verdicts import Verdict, Verdicts

if TYPE_CHECKING:
    from bertwright.training.loop import Job

ALONE = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
"""The variables of torchrun in the process of a trial, which trains alone."""

TIMED_STEPS = 2


@dataclass(frozen=True)
class TrialRun:
    """The run whose steps are compiled: what the process of a trial builds them from."""

    recipe_file: str
    data: str
    precision: Precision
    threads: int
    plugins: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    """What a trial found.

    Attributes:
        verdicts: by kind of step.
        failure: why nothing could be compiled, None where it could.
        unbuildable: the other process could not build the run, which knows choices that are not in
            a file.
        compiled_share: the time of a compiled step as a part of that of an uncompiled one.
        slowdown: seconds that passed for each second that the trial computed.
    """

    verdicts: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])
    failure: str | None = None
    unbuildable: bool = False
    compiled_share: float = 1.0
    slowdown: float = 1.0

    @property
    def difference(self) -> str | None:
        """How compiled steps differ, None where they agree."""
        return next((v.difference for v in self.verdicts.values() if not v.agrees), None)


class Trial:
    """The process of a trial, seen from the training beside it."""

    def __init__(self, run: TrialRun) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bertwright.training.compilation.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            # One C++ compiler at a time: the other cores train.
            env={**os.environ, **ALONE, "TORCHINDUCTOR_COMPILE_THREADS": "1"},
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(run)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is looked at where it is waited for

    def outcome(self, wait: bool = False) -> Outcome | None:
        """Return what the trial found, None while it runs."""
        if not wait and self._process.poll() is None:
            return None
        assert self._process.stdout is not None
        answer = self._process.stdout.read()
        code = self._process.wait()
        if code == 0 and answer:
            return _outcome_of(json.loads(answer))
        return Outcome(failure=self._last_words(code))

    def _last_words(self, code: int) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        if code < 0:
            return f"compiling, or compiled code, ended by signal {-code}"
        return lines[-1][:300] if lines else f"exit code {code}"

    def close(self) -> None:
        """End the process, however far it is."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _outcome_of(answer: dict[str, Any]) -> Outcome:
    verdicts = {kind: Verdict(**verdict) for kind, verdict in answer.pop("verdicts").items()}
    return Outcome(verdicts, **answer)


def main() -> None:
    """Be the process of a trial: a run as JSON on standard input, what was found on standard
    output. The process ends with the one that started it."""
    tune_process()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    settings = json.loads(sys.stdin.readline())
    Thread(target=_end_with_parent, daemon=True).start()
    outcome = try_run(TrialRun(**settings))
    print(json.dumps(asdict(outcome)), file=answers, flush=True)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def try_run(run: TrialRun) -> Outcome:
    """Compile every kind of step of a run, and compare it with the uncompiled one."""
    import torch

    from bertwright.recipes import Recipe
    from bertwright.recipes.loading import import_plugin
    from bertwright.text.shards import Data
    from bertwright.training.clock import Clock
    from bertwright.training.compilation.agreement import verdict_on
    from bertwright.training.compilation.kinds import StepKinds
    from bertwright.training.recipe_job import recipe_job

    began = time.monotonic()
    torch.set_num_threads(run.threads)
    for plugin in run.plugins:
        import_plugin(Path(plugin))
    try:
        recipe, data = Recipe.load(Path(run.recipe_file)), Data.open(run.data)
    except UserError as error:
        return Outcome(failure=str(error), unbuildable=True)
    kinds = StepKinds(recipe, data.tokenizer.size, run.precision, run.threads)
    job = recipe_job(recipe, data, run.precision, Clock(recipe.steps))
    job.compile()
    known, verdicts = Verdicts(), dict[str, Verdict]()
    for place in kinds.places():
        for procedure in job.procedures:
            procedure.before_step(place)
        try:
            verdict = verdict_on(job, place)
        except Exception as error:
            if not raised_by_compiler(error):
                raise
            return Outcome(verdicts, failure=first_line(error))
        verdicts[kinds.at(place)] = verdict
        known.add(kinds.at(place), verdict)
        if not verdict.agrees:
            return Outcome(verdicts)
    kinds.note_warm()
    slowdown = (time.monotonic() - began) / _seconds_computed()
    share = _compiled_share(job)
    return Outcome(verdicts, compiled_share=share, slowdown=max(1.0, slowdown))


def _seconds_computed() -> float:
    """Return the seconds of processors that this process and its children have had."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _compiled_share(job: "Job[Any]") -> float:
    """Return the time of a compiled step as a part of that of an uncompiled one."""
    import torch

    from bertwright.training.compilation.agreement import train_step

    place, fastest = job.clock.place(0), {"force_eager": math.inf, "default": math.inf}
    for _ in range(TIMED_STEPS):
        for stance in fastest:
            with torch.compiler.set_stance(stance):
                began = time.perf_counter()
                train_step(job, place)
                fastest[stance] = min(fastest[stance], time.perf_counter() - began)
    return fastest["default"] / fastest["force_eager"]


if __name__ == "__main__":
    main()
