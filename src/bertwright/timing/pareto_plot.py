"""A plot of scores against latency and size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.core.files import atomic_file

COST_AXES = {"ms_1x128": "ms for one sequence of 128 tokens", "megabytes": "megabytes"}
"""Axis labels by key."""


def plot_pareto(results: Sequence[dict[str, Any]], file: Path) -> None:
    """Plot a comparison; a line joins the points of the Pareto front."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    panels = figure.subplots(1, len(COST_AXES), sharey=True)
    for axes, (key, label) in zip(panels, COST_AXES.items(), strict=True):
        best = pareto_front([(line[key], line["score"]) for line in results])
        axes.plot(*zip(*best, strict=True), drawstyle="steps-post", color="0.7", zorder=0)
        for line in results:
            axes.scatter(line[key], line["score"])
            point = line[key], line["score"]
            axes.annotate(line["artefact"], point, (4, 4), textcoords="offset points", fontsize=8)
        axes.set_xscale("log")
        axes.set_xlabel(label)
    panels[0].set_ylabel(results[0]["metric"])
    with atomic_file(file) as temporary:
        FigureCanvasAgg(figure).print_png(str(temporary))


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (cost, score) that no other point beats in both, by rising cost."""
    front: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or score > front[-1][1]:
            front.append((cost, score))
    return front
