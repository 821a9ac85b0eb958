"""What came of a goal, as a table."""

from collections.abc import Mapping
from typing import Any

from bertwright.document import table

COLUMNS = {
    "what": "what",
    "score": "score",
    "lost": "points lost",
    "interval": "95 % interval",
    "examples": "examples",
    "megabytes": "MB",
    "smaller": "times smaller",
    "milliseconds": "ms",
    "faster": "times faster",
}
"""What is shown, by key."""


def lines(result: Mapping[str, Any]) -> list[str]:
    """The model as it was, and as it is shipped (:meth:`Shipment.ship`)."""
    base, rows = result["base"], list[dict[str, Any]]()
    for name, own in (("base", base), (result["plan"], result["shipped"])):
        rows.append(
            {
                "what": name,
                "score": own["score"],
                "lost": 100 * (base["score"] - own["score"]),
                "interval": None if own is base else result.get("lost_interval"),
                "examples": result.get("examples"),
                "megabytes": own["bytes"] / 1e6,
                "smaller": base["bytes"] / own["bytes"],
                "milliseconds": own["milliseconds"],
                "faster": base["milliseconds"] / own["milliseconds"],
            }
        )
    return table(COLUMNS, rows)
