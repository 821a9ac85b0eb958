"""Run tests against mutants, each in a forked process that has imported what does not change."""

import importlib
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mutation.mutants import Mutant

Outcome = Literal["killed", "survived", "timeout", "not covered"]

LIBRARIES = (
    *("torch", "scipy.stats", "sklearn.linear_model", "tokenizers", "transformers"),
    *("pytest", "hypothesis", "anyio.pytest_plugin", "xdist.plugin"),
)
"""Modules that are imported once, if the tests need them, which takes most of a fast trial."""

COPIED = ("src", "tests", "experiments", "benchmarks", "docs", "fuzz", "mutation", "pyproject.toml")


@dataclass(frozen=True)
class Trial:
    """What the tests made of a mutant."""

    mutant: Mutant
    outcome: Outcome
    num_tests: int
    seconds: float


def copy_checkout(checkout: Path, tree: Path) -> None:
    """Copy the code and the tests, with compiled files that are checked by content.

    A mutated file may have the size and the time of the original one.
    """
    ignore = shutil.ignore_patterns("__pycache__", "_build", ".jupyter_cache", "jupyter_execute")
    for name in COPIED:
        source = checkout / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=ignore)
        else:
            shutil.copy2(source, tree / name)
    compile_all = [
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "checked-hash",
        str(tree / "src"),
    ]
    subprocess.run([sys.executable, *compile_all], check=True)


class TrialServer:
    """A process that imports all that a package's mutants do not change, and is forked for each.

    Packages import one way: those below the mutated one cannot depend on it.
    """

    def __init__(self, tree: Path, modules: Collection[str], packages_below: Sequence[str]) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(other, tree, modules, packages_below), daemon=False
        )
        self._process.start()

    def try_mutant(self, mutant: Mutant, tests: Sequence[str], max_seconds: int) -> Trial:
        """Mutate a file of the copied checkout, run tests until one fails, and restore the file.

        A timeout is ``max_seconds`` of the processor, so that it does not depend on other programs.
        """
        start = time.monotonic()
        outcome = self._outcome(mutant, tests, max_seconds) if tests else "not covered"
        return Trial(mutant, outcome, len(tests), time.monotonic() - start)

    def run(self, tests: Sequence[str]) -> bool:
        """Return whether tests succeed without a mutant."""
        return self._outcome(None, tests, 600) == "survived"

    def stop(self) -> None:
        """End the process."""
        self._connection.send(None)
        self._process.join()

    def _outcome(self, mutant: Mutant | None, tests: Sequence[str], max_seconds: int) -> Outcome:
        self._connection.send((mutant, tests, max_seconds))
        return self._connection.recv()


def _serve(
    connection: Any, tree: Path, modules: Collection[str], packages_below: Sequence[str]
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(tree)
    here = Path(__file__).parents[1].resolve()
    others = [p for p in sys.path if p and Path(p).resolve() not in (here, here / "src")]
    sys.path[:] = [str(tree / "src"), str(tree), *others]
    below = tuple(f"bertwright.{package}." for package in packages_below)
    for name in modules:
        if name in LIBRARIES or name.startswith(below):
            importlib.import_module(name)
    while (job := connection.recv()) is not None:
        mutant, tests, max_seconds = job
        connection.send(run_tests(mutant, tests, max_seconds, tree))


def run_tests(mutant: Mutant | None, tests: Sequence[str], max_seconds: int, tree: Path) -> Outcome:
    """Run tests with a mutated file, or without a mutant, and restore the file."""
    if mutant is None:
        return _run_forked(tests, tree, max_seconds)
    file = tree / mutant.path
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.mutated_source(original), encoding="utf-8")
    try:
        return _run_forked(tests, tree, max_seconds)
    finally:
        file.write_text(original, encoding="utf-8")


def _run_forked(tests: Sequence[str], tree: Path, max_seconds: int) -> Outcome:
    """Run tests in a forked process; a timeout is one that took too long, or waits for ever."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (max_seconds, max_seconds + 1))
        _run_pytest(tests, tree)
    deadline = time.monotonic() + 10 * max_seconds
    while time.monotonic() < deadline:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            code = os.waitstatus_to_exitcode(status)
            if -code in (signal.SIGXCPU, signal.SIGKILL):
                return "timeout"
            return "killed" if code else "survived"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def output_file(tree: Path) -> Path:
    """Return the file with the output of the latest tests."""
    return tree.parent / "output.txt"


def _run_pytest(tests: Sequence[str], tree: Path) -> None:
    """Run tests in this process, and end it."""
    status = 1
    try:
        os.setpgid(0, 0)
        output = os.open(output_file(tree), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for stream in (0, 1, 2):
            os.dup2(output, stream)
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": f"{tree / 'src'}:{tree}", "PYTHONDONTWRITEBYTECODE": "1"}
        import pytest

        # Status 1 is a failed test; any other, such as an error of collection, is noticed, too.
        # Plugins of pytest that a library has imported already work, too.
        options = ["-x", "-q", "-p", "no:cacheprovider"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        status = int(pytest.main([*options, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
