"""What is lost for what is saved: scores against time and against bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.files import atomic_file

AGAINST = {"ms_1x128": "ms for one row of 128 pieces", "megabytes": "megabytes"}
"""What scores are drawn against, by key."""


def draw(lines: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw the lines of a comparison; those that no other beats in both are joined."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    panels = figure.subplots(1, len(AGAINST), sharey=True)
    for axes, (key, label) in zip(panels, AGAINST.items(), strict=True):
        best = front([(line[key], line["score"]) for line in lines])
        axes.plot(*zip(*best, strict=True), drawstyle="steps-post", color="0.7", zorder=0)
        for line in lines:
            axes.scatter(line[key], line["score"])
            place, shift = (line[key], line["score"]), (4, 4)
            axes.annotate(line["artefact"], place, shift, textcoords="offset points", fontsize=8)
        axes.set_xscale("log")
        axes.set_xlabel(label)
    panels[0].set_ylabel(lines[0]["metric"])
    with atomic_file(file) as temporary:
        FigureCanvasAgg(figure).print_png(str(temporary))


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Costs and scores that no other point beats in both, from the cheapest on."""
    found: list[tuple[float, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not found or score > found[-1][1]:
            found.append((cost, score))
    return found
