"""A plot of the loss curves of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.core.files import atomic_file
from bertwright.training.reporters.metrics_file import read_metrics

HELD_OUT_PREFIX = "heldout_"


def save_loss_plot(metrics: Path, path: Path, unigram_entropy: float | None = None) -> None:
    """Plot the losses of a metrics file over the steps into a PNG."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    plot_losses(figure.add_subplot(), metrics, unigram_entropy)
    FigureCanvasAgg(figure)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def plot_losses(axes: Any, metrics: Path, unigram_entropy: float | None = None) -> None:
    """Plot the losses of a metrics file over the steps.

    One line per loss; held-out losses are dots. The unigram entropy, the loss of a model that knows
    only token frequencies, is a dashed line.
    """
    lines = read_metrics(metrics)
    for name in sorted({key for line in lines for key in line if key.endswith("_loss")}):
        steps, losses = _series(lines, name)
        label = name.removesuffix("_loss").replace(HELD_OUT_PREFIX, "held-out ")
        style = {"marker": "o", "linestyle": "none"} if name.startswith(HELD_OUT_PREFIX) else {}
        axes.plot(steps, losses, linewidth=1.2, markersize=4, label=label, **style)
    if unigram_entropy is not None:
        axes.axhline(unigram_entropy, linestyle="--", color="grey", label="unigram entropy")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per target)")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def _series(lines: Sequence[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return steps and values; NaN (a gap) at steps that computed only other losses."""
    steps: list[int] = []
    values: list[float] = []
    for line in lines:
        if name in line or "loss" in line:
            steps.append(line["step"])
            values.append(line.get(name, float("nan")))
    return steps, values
