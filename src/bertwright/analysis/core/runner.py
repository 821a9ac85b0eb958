"""Run several analyses of a model and write their files."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright import __version__
from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import (
    Analysis,
    AnalysisInput,
    StreamingAnalysis,
    run_in_one_pass,
)
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.result import AnalysisResult, has_result, read_result, write_result
from bertwright.analysis.core.texts import texts_digest
from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.files import atomic_file
from bertwright.core.registry import import_installed_plugins

ANALYSIS_GROUPS = (
    "attention",
    "attribution",
    "behaviour",
    "dynamics",
    "geometry",
    "heads",
    "probing",
    "identifiability",
    "syntax",
)
"""Packages whose import registers analyses."""

for _group in ANALYSIS_GROUPS:
    _package = import_module(f"bertwright.analysis.{_group}")
    for _module in walk_packages(_package.__path__, f"{_package.__name__}."):
        import_module(_module.name)

OTHER_MODEL_FOLDER = "other-model"
"""Subfolder for the files of the second model."""


@dataclass(frozen=True)
class AnalysisReport:
    """Claims of an analysis, or why it does not apply; optionally also for a second model."""

    analysis: Analysis
    claim_results: Sequence[ClaimResult] = ()
    not_applicable: str | None = None
    other_report: "AnalysisReport | None" = None

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``analyse --json``."""
        data: dict[str, Any] = {"id": self.analysis.survey_id, "title": self.analysis.title}
        if self.not_applicable is not None:
            return {**data, "not_applicable": self.not_applicable}
        data["claims"] = [result.as_dict() for result in self.claim_results]
        other = self.other_report
        return data if other is None else {**data, "other_model": other.as_dict()}

    def other_claim_result(self, claim: str) -> ClaimResult | None:
        """Return the result of the same claim for the second model."""
        results = () if self.other_report is None else self.other_report.claim_results
        return next((result for result in results if result.claim == claim), None)


def select_analyses(names: Sequence[str]) -> list[Analysis]:
    """Return analyses by name, survey id or group; all of them for ``all``.

    The analyses of a group are ordered by group and survey id. Errors: UserError for an unknown
    name.
    """
    import_installed_plugins()
    kinds = dict(sorted(Analysis.kinds().items(), key=lambda item: _report_order(item[1])))
    known = {kind: [kind] for kind in kinds} | {"all": list(kinds)}
    for kind, analysis in kinds.items():
        known.setdefault(analysis.survey_id.lower(), []).append(kind)
        known.setdefault(analysis.group, []).append(kind)
    selected: dict[str, None] = {}
    for name in names or ["all"]:
        if name.lower() not in known:
            groups = sorted({analysis.group for analysis in kinds.values()})
            raise UserError(f"no analysis {name!r}{did_you_mean(name, known, [*groups, 'all'])}")
        selected |= dict.fromkeys(known[name.lower()])
    return [Analysis.parse(kind) for kind in selected]


def _report_order(analysis: type[Analysis]) -> tuple[str, str]:
    return analysis.group, re.sub(r"\d+", lambda number: number[0].zfill(4), analysis.survey_id)


def run_analyses(
    inputs: AnalysisInput,
    analyses: Sequence[Analysis],
    output: Path,
    log: Callable[[str], None] = print,
) -> list[AnalysisReport]:
    """Run analyses and write their files to ``output``; streaming analyses share one pass.

    Results for the same model, texts and settings are reused.
    """
    reasons = {analysis.kind_name(): analysis.not_applicable(inputs) for analysis in analyses}
    applicable = [analysis for analysis in analyses if reasons[analysis.kind_name()] is None]
    pending = [one for one in applicable if not _is_up_to_date(one, inputs, output, log)]
    if len(pending) < len(applicable):
        log(f"{len(applicable) - len(pending)} of {len(applicable)} are already in {output}")
    streaming = [analysis for analysis in pending if isinstance(analysis, StreamingAnalysis)]
    if streaming:
        start = time.monotonic()
        results = run_in_one_pass(inputs, streaming)
        for analysis, result in zip(streaming, results, strict=True):
            _save_result(analysis, inputs, result, output)
        log(
            f"{len(streaming)} analyses in one pass over {len(inputs.texts)} texts: "
            f"{time.monotonic() - start:.0f} s"
        )
    for analysis in pending:
        if not isinstance(analysis, StreamingAnalysis):
            start = time.monotonic()
            _save_result(analysis, inputs, analysis.run(inputs), output)
            log(f"{analysis.kind_name()}: {time.monotonic() - start:.0f} s")
    return [_report(analysis, reasons[analysis.kind_name()], output) for analysis in analyses]


def pair_reports(
    reports: Sequence[AnalysisReport], other_reports: Sequence[AnalysisReport]
) -> list[AnalysisReport]:
    """Attach the reports of a second model."""
    pairs = zip(reports, other_reports, strict=True)
    return [replace(report, other_report=other) for report, other in pairs]


def stored_reports(
    inputs: AnalysisInput,
    analyses: Sequence[Analysis],
    output: Path,
    other_inputs: AnalysisInput | None = None,
    log: Callable[[str], None] = print,
) -> list[AnalysisReport]:
    """Return stored reports of analyses that were not selected, if they are up to date.

    With ``other_inputs`` they include the second model.
    """
    kinds = {analysis.kind_name() for analysis in analyses}
    other_output = output / OTHER_MODEL_FOLDER
    reports: list[AnalysisReport] = []
    for analysis in select_analyses([]):
        if analysis.kind_name() in kinds or not _is_up_to_date(analysis, inputs, output, log):
            continue
        has_other = other_inputs is not None and _is_up_to_date(
            analysis, other_inputs, other_output, log
        )
        other = _report(analysis, None, other_output) if has_other else None
        reports.append(replace(_report(analysis, None, output), other_report=other))
    return reports


def estimate_pass_seconds(inputs: AnalysisInput) -> float:
    """Estimate the duration of one pass over all texts from a few of them."""
    sample = inputs.texts[:8]
    start = time.monotonic()
    with torch.inference_mode():
        for _ in activation_batches(inputs.model, sample, ()):
            pass
    return (time.monotonic() - start) * len(inputs.texts) / max(len(sample), 1)


def _result_metadata(analysis: Analysis, inputs: AnalysisInput) -> dict[str, Any]:
    """Return everything that a result depends on."""
    compared = inputs.other_model if analysis.compares_models else None
    other = {} if compared is None else {"other_model_digest": compared.model_digest}
    if analysis.uses_training_data and inputs.training_data is not None:
        other["training_data_hash"] = inputs.training_data.manifest.hash
    return {
        **analysis.describe(),
        "settings": analysis.model_dump(mode="json"),
        "model": inputs.model.name,
        "model_digest": inputs.model.model_digest,
        **other,
        "num_texts": len(inputs.texts),
        "texts_digest": texts_digest(inputs.texts),
        "seed": inputs.seed,
        "version": __version__,
    }


def _is_up_to_date(
    analysis: Analysis, inputs: AnalysisInput, output: Path, log: Callable[[str], None]
) -> bool:
    """Return True if the folder holds a complete result for the same inputs, with its plot."""
    kind = analysis.kind_name()
    if not (_plot_file(output, kind).is_file() and has_result(output, kind)):
        return False
    try:
        return read_result(output, kind).metadata == _result_metadata(analysis, inputs)
    except UserError:
        log(f"{kind} in {output} is damaged or of another version: ignored")
        return False


def _plot_file(output: Path, kind: str) -> Path:
    return output / f"{kind}.png"


def _save_result(
    analysis: Analysis, inputs: AnalysisInput, result: AnalysisResult, output: Path
) -> None:
    kind = analysis.kind_name()
    # The plot is written last, so that an interrupted run leaves no plot that does not match.
    _plot_file(output, kind).unlink(missing_ok=True)
    write_result(output, kind, _result_metadata(analysis, inputs), result)
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    analysis.plot(read_result(output, kind), figure)
    with atomic_file(_plot_file(output, kind)) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def _report(analysis: Analysis, not_applicable: str | None, output: Path) -> AnalysisReport:
    if not_applicable is not None:
        return AnalysisReport(analysis, not_applicable=not_applicable)
    stored = read_result(output, analysis.kind_name())
    return AnalysisReport(analysis, analysis.check_claims(stored))
