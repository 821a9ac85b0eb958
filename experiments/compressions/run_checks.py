"""Running checks, in parallel where possible, on toy models that are trained once."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.result_store import ResultStore
from bertwright.core.errors import TrainingInterrupted
from bertwright.core.hardware import num_cores
from bertwright.runtime.parallel import run_parallel
from experiments.analyses.expecting import ExpectedValue
from experiments.compressions.check import CheckOutcome, CompressionCheck, MeasuredValue
from experiments.compressions.checks import select_checks
from experiments.compressions.toy_models import ToyModels, train_toy_models
from experiments.single_thread import single_thread

CHECKS, QUICK_CHECKS = "checks.json", "quick-checks.json"
"""The files of passed checks in a folder, by number."""


def run_checks(
    checks: Sequence[CompressionCheck],
    is_quick: bool,
    log: Callable[[str], None],
    output: Path | None = None,
) -> Iterator[CheckOutcome]:
    """Yield the outcomes of checks; timed ones run last, without others in parallel.

    Passed checks are stored in ``output`` and not run again.
    """
    if output is None:
        yield from _run_checks(checks, is_quick, log)
        return
    output.mkdir(parents=True, exist_ok=True)
    store = ResultStore(output / (QUICK_CHECKS if is_quick else CHECKS))
    stored = [check for check in checks if check.number in store.results]
    yield from (CheckOutcome.from_dict(check, store.results[check.number]) for check in stored)
    remaining = [check for check in checks if check not in stored]
    for outcome in _run_checks(remaining, is_quick, log):
        if outcome.ok:
            store.add(outcome.check.number, outcome.as_dict())
        yield outcome


def _run_checks(
    checks: Sequence[CompressionCheck], is_quick: bool, log: Callable[[str], None]
) -> Iterator[CheckOutcome]:
    """Yield the outcomes of checks on new toy models."""
    if not checks:
        return
    with TemporaryDirectory() as folder, single_thread():
        start = time.monotonic()
        toy = train_toy_models(Path(folder), is_quick)
        log(f"toy models trained: {time.monotonic() - start:.0f} s")
        parallel = [partial(run_check, toy, check.number) for check in checks if not check.is_timed]
        yield from (outcome for _, outcome in run_parallel(parallel, num_cores()))
        yield from (run_check(toy, check.number) for check in checks if check.is_timed)


def run_check(toy: ToyModels, number: str) -> CheckOutcome:
    """Run a check by its number; an error ends it and is part of the outcome."""
    (check,) = select_checks([number])
    start, failure = time.monotonic(), ""
    checks: list[ExpectedValue] = []
    values: list[MeasuredValue] = []
    try:
        for result in check.run(toy):
            if isinstance(result, ExpectedValue):
                checks.append(result)
            else:
                values.append(result)
    except TrainingInterrupted:
        raise
    except Exception as error:  # of one check: the others still run
        failure = f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - start, 1)
    return CheckOutcome(check, seconds, checks, values, toy.is_quick, failure)
