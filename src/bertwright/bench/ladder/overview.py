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
    "lost": "points lost",
    "worst": "at worst",
    "faster": f"speed-up at {BATCH}x{LENGTH}",
    "layers": "layers",
    "tasks": "tasks",
}
"""What a document shows, by key."""


def overview(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the tasks of each way and form, of the rows of a ladder; those of the speed-up are
    over the tasks that were timed. What is kept is of the mean score."""
    order = list(dict.fromkeys(map(_of, rows)))
    alike = groupby(sorted(rows, key=lambda row: order.index(_of(row))), key=_of)
    return [_mean(list(own)) | {"way": way, "form": form} for (way, form), own in alike]


def _of(row: dict[str, Any]) -> tuple[str, str]:
    return row["way"], row["form"]


def _mean(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    key = f"faster_{BATCH}x{LENGTH}"
    faster = [row[key] for row in rows if key in row]
    lost = [100 * (row["of"] - row["mean"]) for row in rows]
    most = max(range(len(rows)), key=lost.__getitem__)
    return {
        "smaller": fmean(row["smaller"] for row in rows),
        "kept": 100 * sum(row["mean"] for row in rows) / sum(row["of"] for row in rows),
        "lost": fmean(lost),
        "worst": f"{lost[most]:.4g} ({rows[most]['task']})",
        "faster": fmean(faster) if faster else None,
        "layers": rows[0]["layers"],
        "tasks": ", ".join(row["task"] for row in rows),
    }
