"""All rows, one after the other or side by side, on ground that is made once."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bertwright.analysis.planted.expecting import Expected
from bertwright.bench.runs import Runs
from bertwright.errors import Interrupted
from bertwright.machine.cores import num_cores
from bertwright.machine.process import one_thread
from bertwright.side_by_side import side_by_side
from bertwright.studies.compression_checks.ground import Ground, made
from bertwright.studies.compression_checks.row import Checked, Measured, Row
from bertwright.studies.compression_checks.rows import chosen

CHECKS, QUICK_CHECKS = "checks.json", "quick-checks.json"
"""In a folder, what became of every row that was as it should be, by its number."""


def check_all(
    rows: Sequence[Row], quick: bool, say: Callable[[str], None], out: Path | None = None
) -> Iterator[Checked]:
    """Those that measure time come last, when nothing runs beside them. What stands in ``out`` is
    not asked again, and what is as it should be is kept there."""
    if out is None:
        yield from _checked(rows, quick, say)
        return
    out.mkdir(parents=True, exist_ok=True)
    runs = Runs(out / (QUICK_CHECKS if quick else CHECKS))
    stand = [row for row in rows if row.number in runs.known]
    yield from (Checked.of(row, runs.known[row.number]) for row in stand)
    for each in _checked([row for row in rows if row not in stand], quick, say):
        if each.ok:
            runs.keep(each.row.number, each.as_dict())
        yield each


def _checked(rows: Sequence[Row], quick: bool, say: Callable[[str], None]) -> Iterator[Checked]:
    """All of them, on new ground."""
    if not rows:
        return
    with TemporaryDirectory() as folder, one_thread():
        began = time.monotonic()
        ground = made(Path(folder), quick)
        say(f"a toy model was trained: {time.monotonic() - began:.0f} s")
        beside = [partial(check, ground, row.number) for row in rows if not row.alone]
        yield from (each for _, each in side_by_side(beside, num_cores()))
        yield from (check(ground, row.number) for row in rows if row.alone)


def check(ground: Ground, number: str) -> Checked:
    """One row by its number; what is wrong ends it and stands in it."""
    (row,) = chosen([number])
    began, failed = time.monotonic(), ""
    checks: list[Expected] = []
    figures: list[Measured] = []
    try:
        for came in row.run(ground):
            if isinstance(came, Expected):
                checks.append(came)
            else:
                figures.append(came)
    except Interrupted:
        raise
    except Exception as error:  # of one row: the others are still to be checked
        failed = f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - began, 1)
    return Checked(row, seconds, checks, figures, ground.quick, failed)
