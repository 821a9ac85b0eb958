"""Metrics of a run for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertwright.core.errors import MissingExtra
from bertwright.core.files import explain_full_disk
from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import Progress


class TensorBoard(Callback):
    """A callback that writes TensorBoard event files into a folder.

    Errors: MissingExtra if the library is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", "tensorboard") from error
        self._folder = folder
        self._writer: Any = SummaryWriter(str(folder))

    def report_step(self, report: StepReport) -> None:
        step = report.progress.step + 1
        self._write_scalar("loss", report.loss, step)
        for name, loss in report.losses.items():
            self._write_scalar(f"{name}/loss", loss, step)
            self._write_scalar(f"{name}/accuracy", report.accuracies[name], step)
        for name, rate in report.masking_rates.items():
            self._write_scalar(f"{name}/masking_rate", rate, step)
        self._write_scalar("learning_rate_factor", report.learning_rate_factor, step)
        self._write_scalar("gradient_norm", report.gradient_norm, step)

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._write_scalar(f"evaluation/{name}", value, progress.step)

    def _write_scalar(self, name: str, value: float, step: int) -> None:
        with explain_full_disk(self._folder):
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
