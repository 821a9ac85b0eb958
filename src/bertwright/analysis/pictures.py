"""Pictures that several analyses draw."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray


def errors(found: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """How far the intervals of findings reach below and above their values, (2, N); 0 where there
    is none."""
    spans = [(own["value"], *own.get("interval", (own["value"],) * 2)) for own in found]
    value, low, high = np.array(spans, np.float64).reshape(-1, 3).T
    return np.maximum([value - low, high - value], 0)


def bars(axes: Axes, found: Sequence[Mapping[str, Any]], what: str) -> None:
    """The values of findings with their intervals, from the top down by their metrics, and a line
    where the baseline of the first stands, if it has one; ``what`` they are."""
    own = list(reversed(found))
    values = [each["value"] for each in own]
    axes.barh([each["metric"] for each in own], values, xerr=errors(own))
    if (baseline := found[0].get("baseline")) is not None:
        axes.axvline(baseline["value"], linestyle=":", color="grey")
    axes.set_xlabel(what)
