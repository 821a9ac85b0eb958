"""The quickstart in one figure: pre-training losses and fine-tuning scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright.core.files import atomic_file
from bertwright.training.reporters.loss_plot import plot_losses

BARS = {
    "score": "trained",
    "untrained": "the same encoder,\nuntrained",
    "words_alone": "each word's most\nfrequent tag",
    "majority": "the most\nfrequent tag",
}


def plot_quickstart(metrics: Path, result: Mapping[str, Any], path: Path) -> None:
    """Plot the losses in a metrics file next to the scores of the task, as a PNG."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    losses: Any
    bars: Any
    losses, bars = figure.subplots(1, 2, width_ratios=(5, 4))
    plot_losses(losses, metrics, result["unigram_entropy"])
    losses.set_title("Pre-training")
    names = list(reversed(BARS))
    values = [result["task"][name] for name in names]
    rectangles = bars.barh([BARS[name] for name in names], values, color=["0.7"] * 3 + ["C0"])
    bars.bar_label(rectangles, fmt="%.2f", padding=3)
    bars.set_xlim(0, 1.15 * max(values))
    bars.set_xlabel("macro F1")
    bars.set_title("Restoring punctuation and capitals")
    bars.spines[["top", "right"]].set_visible(False)
    FigureCanvasAgg(figure)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
