"""The numbers of a run for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertwright.errors import MissingExtra
from bertwright.files import full_disk_named
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
        self._folder = folder
        self._writer: Any = SummaryWriter(str(folder))

    def step(self, report: StepReport) -> None:
        step = report.place.step + 1
        self._write("loss", report.loss, step)
        for name, loss in report.losses.items():
            self._write(f"{name}/loss", loss, step)
            self._write(f"{name}/accuracy", report.accuracies[name], step)
        for name, share in report.hidden.items():
            self._write(f"{name}/hidden", share, step)
        self._write("rate", report.rate, step)
        self._write("gradient_norm", report.norm, step)

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._write(f"evaluation/{name}", value, place.step)

    def _write(self, name: str, value: float, step: int) -> None:
        with full_disk_named(self._folder):
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
