"""A trial compilation in a background process.

The process builds the steps of a run, compiles them into the cache of PyTorch's compiler, and
compares every variant with the uncompiled step. Failures (a missing, failing or hanging compiler, a
read-only folder, code that crashes) only affect that process.
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

from bertwright.core.config import Precision
from bertwright.core.errors import UserError
from bertwright.core.messages import first_line
from bertwright.runtime.compiler import is_compiler_error
from bertwright.runtime.process import configure_process
from bertwright.training.compilation.agreement_cache import AgreementCache, StepAgreement

if TYPE_CHECKING:
    from bertwright.training.loop import TrainingJob

SINGLE_PROCESS_VARIABLES = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
"""Variables of torchrun for a single process."""

NUM_TIMED_STEPS = 2


@dataclass(frozen=True)
class CompilationTrialSpec:
    """The run whose steps a trial builds and compiles."""

    recipe_file: str
    data_folder: str
    precision: Precision
    threads: int
    plugins: Sequence[str] = ()


@dataclass(frozen=True)
class CompilationTrialResult:
    """The result of a trial.

    Attributes:
        agreements: agreements by step variant.
        failure: reason of a failed compilation, else None.
        build_failed: the process could not build the run, for instance because an option is not
            defined in a file.
        compiled_time_fraction: duration of a compiled step relative to an uncompiled one.
        slowdown: wall-clock seconds per CPU second of the trial.
    """

    agreements: Mapping[str, StepAgreement] = field(default_factory=dict[str, StepAgreement])
    failure: str | None = None
    build_failed: bool = False
    compiled_time_fraction: float = 1.0
    slowdown: float = 1.0

    @property
    def difference(self) -> str | None:
        """Return how compiled steps differ, None if they agree."""
        return next((a.difference for a in self.agreements.values() if not a.agrees), None)


class CompilationTrial:
    """A trial running in a child process."""

    def __init__(self, spec: CompilationTrialSpec) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bertwright.training.compilation.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            # One C++ compiler at a time, since the other cores train.
            env={**os.environ, **SINGLE_PROCESS_VARIABLES, "TORCHINDUCTOR_COMPILE_THREADS": "1"},
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(spec)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # :meth:`result` reports how the process ended

    def result(self, wait: bool = False) -> CompilationTrialResult | None:
        """Return the result, None while the trial runs."""
        if not wait and self._process.poll() is None:
            return None
        assert self._process.stdout is not None
        output = self._process.stdout.read()
        code = self._process.wait()
        if code == 0 and output:
            return _parse_result(json.loads(output))
        return CompilationTrialResult(failure=self._exit_reason(code))

    def _exit_reason(self, code: int) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        if code < 0:
            return f"compiling or running compiled code was ended by signal {-code}"
        return lines[-1][:300] if lines else f"exit code {code}"

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parse_result(entries: dict[str, Any]) -> CompilationTrialResult:
    agreements = {key: StepAgreement(**entry) for key, entry in entries.pop("agreements").items()}
    return CompilationTrialResult(agreements, **entries)


def main() -> None:
    """Run the trial process: spec on standard input, result on standard output, as JSON.

    The process exits together with its parent.
    """
    configure_process()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    spec = CompilationTrialSpec(**json.loads(sys.stdin.readline()))
    Thread(target=_exit_with_parent, daemon=True).start()
    print(json.dumps(asdict(run_trial(spec))), file=output, flush=True)


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def run_trial(spec: CompilationTrialSpec) -> CompilationTrialResult:
    """Compile every step variant of a run, and compare it with the uncompiled step."""
    import torch

    from bertwright.data.shards.dataset import Dataset
    from bertwright.recipes import Recipe
    from bertwright.recipes.loading import import_plugin
    from bertwright.training.clock import TrainingClock
    from bertwright.training.compilation.agreement import compare_compiled_step
    from bertwright.training.compilation.step_variants import StepVariants
    from bertwright.training.pretraining.job import untrained_job

    start = time.monotonic()
    torch.set_num_threads(spec.threads)
    for plugin in spec.plugins:
        import_plugin(Path(plugin))
    try:
        recipe, data = Recipe.load(Path(spec.recipe_file)), Dataset.open(spec.data_folder)
    except UserError as error:
        return CompilationTrialResult(failure=str(error), build_failed=True)
    variants = StepVariants(recipe, data.tokenizer.vocab_size, spec.precision, spec.threads)
    job = untrained_job(recipe, data, spec.precision, TrainingClock(recipe.steps))
    job.compile()
    cache, agreements = AgreementCache(), dict[str, StepAgreement]()
    for progress in variants.representatives():
        for callback in job.callbacks:
            callback.before_step(progress)
        try:
            agreement = compare_compiled_step(job, progress)
        except Exception as error:
            if not is_compiler_error(error):
                raise
            return CompilationTrialResult(agreements, failure=first_line(error))
        agreements[variants.key(progress)] = agreement
        cache.add(variants.key(progress), agreement)
        if not agreement.agrees:
            return CompilationTrialResult(agreements)
    variants.mark_cache_warm()
    slowdown = (time.monotonic() - start) / _cpu_seconds()
    return CompilationTrialResult(
        agreements,
        compiled_time_fraction=_measure_compiled_time_fraction(job),
        slowdown=max(1.0, slowdown),
    )


def _cpu_seconds() -> float:
    """Return the CPU seconds used by this process and its children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _measure_compiled_time_fraction(job: "TrainingJob[Any]") -> float:
    """Return the duration of a compiled step relative to an uncompiled one."""
    import torch

    from bertwright.training.compilation.agreement import train_step

    progress, fastest = job.clock.progress(0), {"force_eager": math.inf, "default": math.inf}
    for _ in range(NUM_TIMED_STEPS):
        for stance in fastest:
            with torch.compiler.set_stance(stance):
                start = time.perf_counter()
                train_step(job, progress)
                fastest[stance] = min(fastest[stance], time.perf_counter() - start)
    return fastest["default"] / fastest["force_eager"]


if __name__ == "__main__":
    main()
