"""``metrics.jsonl``: the numbers of a run, for whoever reads them later."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from bertwright.files import full_disk_named, json_value, write_text
from bertwright.training.clock import Clock, Place
from bertwright.training.reporting import Reporter, Speed, StepReport, figure_name

STEPS_PER_LINE = 10
"""Steps that one line sums up."""


class MetricsFile(Reporter):
    """A line for every ten steps and one for every evaluation, each on its way to the disk at once.

    Losses, accuracies and what is hidden of the text are means over the steps of a line; ``step``
    counts the steps done. Lines after ``first_step`` that an earlier process wrote are removed:
    those steps are taken again.
    """

    def __init__(self, file: Path, clock: Clock, speed: Speed, first_step: int = 0) -> None:
        self._file = file
        self._clock = clock
        self._speed = speed
        self._reports: list[StepReport] = []
        _keep_lines_until(file, first_step)

    def step(self, report: StepReport) -> None:
        self._reports.append(report)
        if (report.place.step + 1) % STEPS_PER_LINE == 0:
            self._write_reports()

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        self._write({**self._where(place.step, place), **figures})

    def close(self) -> None:
        if self._reports:
            self._write_reports()

    def _write_reports(self) -> None:
        reports, self._reports = self._reports, []
        last = reports[-1]
        line = self._where(last.place.step + 1, last.place)
        line["loss"] = fmean([r.loss for r in reports])
        for name in dict.fromkeys(name for report in reports for name in report.losses):
            asked = [r for r in reports if name in r.losses]
            key = figure_name(name)
            line[f"{key}_loss"] = fmean([r.losses[name] for r in asked])
            line[f"{key}_accuracy"] = fmean([r.accuracies[name] for r in asked])
        for name in last.hidden:
            shares = [r.hidden[name] for r in reports if name in r.hidden]
            line[f"{figure_name(name)}_hidden"] = fmean(shares)
        line |= {"rate": last.rate, "gradient_norm": last.norm, "tokens": last.tokens}
        line["tokens_per_second"] = self._speed.tokens_per_second()
        line["peak_share"] = self._speed.peak_share()
        self._write(line)

    def _where(self, step: int, place: Place) -> dict[str, Any]:
        return {
            "step": step,
            "progress": round(place.progress, 6),
            "phase": place.phase,
            "seconds": round(self._clock.elapsed(), 3),
        }

    def _write(self, line: Mapping[str, Any]) -> None:
        with full_disk_named(self._file), open(self._file, "a", encoding="utf-8") as opened:
            opened.write(json.dumps(line) + "\n")


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a metrics file, up to one that was cut short."""
    lines: list[dict[str, Any]] = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            lines.append(json_value(text))
        except ValueError:
            break
    return lines


def _keep_lines_until(file: Path, step: int) -> None:
    kept = [json.dumps(line) + "\n" for line in read_metrics(file) if line["step"] <= step]
    write_text(file, "".join(kept))
