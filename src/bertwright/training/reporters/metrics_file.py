"""The metrics of a run as JSON lines (``metrics.jsonl``)."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from bertwright.core.files import explain_full_disk, read_json_lines, write_text
from bertwright.training.callbacks.callback import Callback, StepReport, metric_name
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.reporters.throughput import ThroughputMeter

STEPS_PER_LINE = 10
"""Steps averaged in one line, at most."""


class MetricsFile(Callback):
    """A callback that writes a line every ten steps, at a checkpoint and after every evaluation.

    Losses, accuracies and masking rates are means over the steps of a line; ``step`` counts
    completed steps. When a run resumes, earlier lines after ``first_step`` are removed, since those
    steps are repeated. No line has steps on both sides of a checkpoint, so none is left out.
    """

    def __init__(
        self, file: Path, clock: TrainingClock, throughput: ThroughputMeter, first_step: int = 0
    ) -> None:
        self._file = file
        self._clock = clock
        self._throughput = throughput
        self._reports: list[StepReport] = []
        _drop_lines_after(file, first_step)

    def report_step(self, report: StepReport) -> None:
        self._reports.append(report)
        if (report.progress.step + 1) % STEPS_PER_LINE == 0:
            self._write_reports()

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        self._write_line({**self._progress_fields(progress.step, progress), **metrics})

    def before_checkpoint(self) -> None:
        self._write_reports()

    def close(self) -> None:
        self._write_reports()

    def _write_reports(self) -> None:
        reports, self._reports = self._reports, []
        if not reports:
            return
        last = reports[-1]
        line = self._progress_fields(last.progress.step + 1, last.progress)
        line["loss"] = fmean([r.loss for r in reports])
        for name in dict.fromkeys(name for report in reports for name in report.losses):
            with_loss = [r for r in reports if name in r.losses]
            key = metric_name(name)
            line[f"{key}_loss"] = fmean([r.losses[name] for r in with_loss])
            line[f"{key}_accuracy"] = fmean([r.accuracies[name] for r in with_loss])
        for name in last.masking_rates:
            rates = [r.masking_rates[name] for r in reports if name in r.masking_rates]
            line[f"{metric_name(name)}_masking_rate"] = fmean(rates)
        line |= {
            "learning_rate_factor": last.learning_rate_factor,
            "gradient_norm": last.gradient_norm,
            "tokens": last.num_tokens,
            "tokens_per_second": self._throughput.tokens_per_second(),
            "flops_utilisation": self._throughput.flops_utilisation(),
        }
        self._write_line(line)

    def _progress_fields(self, step: int, progress: Progress) -> dict[str, Any]:
        return {
            "step": step,
            "progress": round(progress.fraction, 6),
            "phase": progress.phase,
            "seconds": round(self._clock.elapsed_seconds(), 3),
        }

    def _write_line(self, line: Mapping[str, Any]) -> None:
        with explain_full_disk(self._file), open(self._file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics file; stop at an incomplete line."""
    return read_json_lines(file)


def _drop_lines_after(file: Path, step: int) -> None:
    kept = [json.dumps(line) + "\n" for line in read_metrics(file) if line["step"] <= step]
    write_text(file, "".join(kept))
