"""The numbers of a run for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertwright.errors import MissingExtra
from bertwright.training.clock import Place
from bertwright.training.reporting import Reporter, StepReport


class TensorBoard(Reporter):
    """Writes event files into a folder.

    Errors: MissingExtra when the library is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", "tensorboard") from error
        self._writer: Any = SummaryWriter(str(folder))

    def step(self, report: StepReport) -> None:
        step = report.place.step + 1
        self._writer.add_scalar("loss", report.loss, step)
        for name, loss in report.losses.items():
            self._writer.add_scalar(f"{name}/loss", loss, step)
            self._writer.add_scalar(f"{name}/accuracy", report.accuracies[name], step)
        for name, share in report.hidden.items():
            self._writer.add_scalar(f"{name}/hidden", share, step)
        self._writer.add_scalar("rate", report.rate, step)
        self._writer.add_scalar("gradient_norm", report.norm, step)

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(f"evaluation/{name}", value, place.step)

    def close(self) -> None:
        self._writer.close()
