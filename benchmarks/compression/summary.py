"""Summary of a comparison: means over tasks of size, score and speed of every variant."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from bertwright.timing.artefacts import TIMED_SHAPES

BATCH_SIZE, SEQUENCE_LENGTH, _ = TIMED_SHAPES[-1]
"""Shape of the speed-up; published ones are of several texts, too."""

COLUMNS = {
    "variant": "variant",
    "form": "form",
    "smaller": "compression",
    "kept": "performance retention, %",
    "lost": "points lost",
    "worst": "at worst",
    "faster": f"speed-up at {BATCH_SIZE}x{SEQUENCE_LENGTH}",
    "layers": "layers",
    "tasks": "tasks",
}
"""Columns of the table, by key."""


def summarise_variants(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for every variant and form, with means over tasks.

    The speed-up is the mean over timed tasks; ``kept`` is the ratio of the mean scores.
    """
    order = list(dict.fromkeys(map(_variant_and_form, results)))
    groups = groupby(
        sorted(results, key=lambda row: order.index(_variant_and_form(row))), key=_variant_and_form
    )
    return [
        _mean_over_tasks(list(rows)) | {"variant": variant, "form": form}
        for (variant, form), rows in groups
    ]


def _variant_and_form(result: dict[str, Any]) -> tuple[str, str]:
    return result["variant"], result["form"]


def _mean_over_tasks(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    key = f"faster_{BATCH_SIZE}x{SEQUENCE_LENGTH}"
    faster = [row[key] for row in results if key in row]
    lost = [100 * (row["baseline_mean"] - row["mean"]) for row in results]
    worst = max(range(len(results)), key=lost.__getitem__)
    return {
        "smaller": fmean(row["smaller"] for row in results),
        "kept": 100
        * sum(row["mean"] for row in results)
        / sum(row["baseline_mean"] for row in results),
        "lost": fmean(lost),
        "worst": f"{lost[worst]:.4g} ({results[worst]['task']})",
        "faster": fmean(faster) if faster else None,
        "layers": results[0]["layers"],
        "tasks": ", ".join(row["task"] for row in results),
    }
