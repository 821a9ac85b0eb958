"""Pictures that several analyses draw."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes


def bars(axes: Axes, found: Sequence[Mapping[str, Any]], what: str) -> None:
    """The values of findings with their intervals, from the top down by their metrics, and a line
    where the baseline of the first stands, if it has one; ``what`` they are."""
    own = list(reversed(found))
    values = np.array([each["value"] for each in own])
    low, high = np.array([each["interval"] for each in own]).T
    axes.barh([each["metric"] for each in own], values, xerr=[values - low, high - values])
    if (baseline := found[0].get("baseline")) is not None:
        axes.axvline(baseline["value"], linestyle=":", color="grey")
    axes.set_xlabel(what)
