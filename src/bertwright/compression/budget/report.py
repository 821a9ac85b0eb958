"""The table of a compression to a goal."""

from collections.abc import Mapping
from typing import Any

from bertwright.runtime.markdown_report import markdown_table

COLUMNS = {
    "model": "model",
    "score": "score",
    "lost_points": "points lost",
    "interval": "95 % interval",
    "examples": "examples",
    "megabytes": "MB",
    "smaller": "times smaller",
    "milliseconds": "ms",
    "faster": "times faster",
}
"""Column titles by key."""


def report_table(result: Mapping[str, Any]) -> list[str]:
    """Return the table of the original and the compressed model, of :meth:`BudgetRun.run`."""
    base, lines = result["base"], list[dict[str, Any]]()
    for name, model in (("base", base), (result["plan"], result["compressed"])):
        lines.append(
            {
                "model": name,
                "score": model["score"],
                "lost_points": 100 * (base["score"] - model["score"]),
                "interval": None if model is base else result.get("lost_points_interval"),
                "examples": result.get("examples"),
                "megabytes": model["bytes"] / 1e6,
                "smaller": base["bytes"] / model["bytes"],
                "milliseconds": model["milliseconds"],
                "faster": base["milliseconds"] / model["milliseconds"],
            }
        )
    return markdown_table(COLUMNS, lines)
