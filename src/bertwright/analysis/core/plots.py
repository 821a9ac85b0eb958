"""Plots that analyses share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bertwright.analysis.core.result import Array, StoredResult


class Plot(ABC):
    """One panel of the figure of an analysis."""

    @abstractmethod
    def draw(self, axes: Axes, result: StoredResult) -> None:
        """Draw the panel."""


@dataclass(frozen=True)
class LayerCurves(Plot):
    """Labelled curves over layers.

    Attributes:
        curves: Returns values by label: (layers,); (layers, heads), drawn as a dot per head and a
            curve for the mean of the layer; or one value, drawn as a dotted line.
        has_embeddings: True if layer 0 is the embeddings instead of the first block.
        x: Name of the array of x positions, if these are not layers.
    """

    ylabel: str
    curves: Callable[[StoredResult], Mapping[str, Array]] = lambda result: result.arrays
    has_embeddings: bool = True
    xlabel: str = ""
    x: str | None = None

    def draw(self, axes: Axes, result: StoredResult) -> None:
        for number, (label, values) in enumerate(self.curves(result).items()):
            color, label = f"C{number}", label.replace("$", r"\$")
            if values.ndim == 0:
                axes.axhline(float(values), linestyle=":", color=color, label=label)
                continue
            layers = np.arange(len(values)) + (0 if self.has_embeddings else 1)
            layers = layers if self.x is None else result.arrays[self.x]
            if values.ndim == 2:
                axes.scatter(layers.repeat(values.shape[1]), values.ravel(), s=8, color=color)
                values = values.mean(1)
            axes.plot(layers, values, marker="o", color=color, label=label)
        default = "layer (0: embeddings)" if self.has_embeddings else "layer"
        axes.set_xlabel(self.xlabel or default)
        axes.xaxis.set_major_locator(MaxNLocator(integer=self.x is None))
        axes.set_ylabel(self.ylabel)
        axes.legend()


@dataclass(frozen=True)
class FindingBars(Plot):
    """Horizontal bars with intervals, from top to bottom, and a tick at each baseline.

    Attributes:
        metrics: Names of metrics, or a prefix that selects those with a baseline.
    """

    xlabel: str
    metrics: Sequence[str] | str

    def draw(self, axes: Axes, result: StoredResult) -> None:
        if isinstance(self.metrics, str):
            names = [f["metric"] for f in result.findings if "baseline" in f]
            metrics = [name for name in names if name.startswith(self.metrics)]
        else:
            metrics = self.metrics
        prefix = self.metrics if isinstance(self.metrics, str) else ""
        findings = [next(f for f in result.findings if f["metric"] == m) for m in metrics][::-1]
        positions = np.arange(len(findings))
        axes.barh(positions, [f["value"] for f in findings], xerr=error_bars(findings))
        axes.set_yticks(positions, [_bar_label(f, prefix) for f in findings])
        baselines = [f.get("baseline", {"value": np.nan})["value"] for f in findings]
        axes.scatter(baselines, positions, marker="|", s=200, color="black", zorder=3)
        axes.set_xlabel(self.xlabel)


@dataclass(frozen=True)
class HeatMap(Plot):
    """A heat map, by default of layers and heads.

    Attributes:
        values: Returns the values, or None for an empty panel.
        limits: Limits of the colour scale; None for limits symmetric about 0.
        first: Numbers of the first column and the first row.
    """

    label: str
    values: Callable[[StoredResult], Array | None]
    limits: tuple[float | None, float | None] | None = (0, 1)
    xlabel: str = "head"
    ylabel: str = "layer"
    first: tuple[int, int] = (1, 1)

    def draw(self, axes: Axes, result: StoredResult) -> None:
        values = self.values(result)
        if values is None:
            axes.set_axis_off()
            return
        limit = float(np.abs(values).max())
        low, high = (-limit, limit) if self.limits is None else self.limits
        colors = "RdBu_r" if self.limits is None else "viridis"
        (left, top), (height, width) = self.first, values.shape
        image = axes.imshow(
            values,
            cmap=colors,
            vmin=low,
            vmax=high,
            aspect="auto",
            extent=(left - 0.5, left + width - 0.5, top + height - 0.5, top - 0.5),
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.figure.colorbar(image, ax=axes, label=self.label)
        axes.set_xlabel(self.xlabel)
        axes.set_ylabel(self.ylabel)


def values_by_head(*metrics: str) -> Callable[[StoredResult], Mapping[str, Array]]:
    """Return a function that returns the values of metrics by head, as curves."""
    return lambda result: {metric: result.values_by_head(metric) for metric in metrics}


def error_bars(findings: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Return how far intervals reach below and above the values, (2, N); 0 without an interval."""
    spans = [(f["value"], *f.get("interval", (f["value"],) * 2)) for f in findings]
    value, low, high = np.array(spans, np.float64).reshape(-1, 3).T
    return np.maximum([value - low, high - value], 0)


def _bar_label(finding: Mapping[str, Any], prefix: str) -> str:
    name = finding["metric"].removeprefix(prefix)
    if "head" not in finding:
        return name
    return f"{name} (head {finding['layer_from_1']}-{finding['head_from_1']})"
