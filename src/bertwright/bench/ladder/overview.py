"""All tasks of a way in one row: how much smaller it is, how much it keeps, how much faster."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from bertwright.bench.artefacts.comparing import SHAPES

BATCH, LENGTH, _ = SHAPES[-1]
"""At which it is told how much faster a way is: of several texts, as what was published."""

COLUMNS = {
    "way": "way",
    "form": "form",
    "smaller": "compression",
    "kept": "performance retention, %",
    "faster": f"speed-up at {BATCH}x{LENGTH}",
    "layers": "layers",
    "tasks": "tasks",
}
"""What a document shows, by key."""


def overview(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the tasks of each way and form, of the rows of a ladder; those of the speed-up are
    over the tasks that were timed."""
    order = list(dict.fromkeys(map(_of, rows)))
    alike = groupby(sorted(rows, key=lambda row: order.index(_of(row))), key=_of)
    return [_mean(list(own)) | {"way": way, "form": form} for (way, form), own in alike]


def _of(row: dict[str, Any]) -> tuple[str, str]:
    return row["way"], row["form"]


def _mean(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    key = f"faster_{BATCH}x{LENGTH}"
    faster = [row[key] for row in rows if key in row]
    return {
        "smaller": fmean(row["smaller"] for row in rows),
        "kept": fmean(row["kept"] for row in rows),
        "faster": fmean(faster) if faster else None,
        "layers": rows[0]["layers"],
        "tasks": ", ".join(row["task"] for row in rows),
    }
