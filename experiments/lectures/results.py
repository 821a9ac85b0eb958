"""Stored results of what the lines refer to, in words."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bertwright.core.verdicts import VerdictLabel
from bertwright.studies.report import RESULT_FILE, stored_results
from bertwright.studies.study import Study
from bertwright.studies.verdict import StudyVerdict, evaluate, overall_label
from experiments.analyses.stored_claims import read_claims
from experiments.claims_page import has_present_design
from experiments.compressions.check import CheckOutcome
from experiments.compressions.checks import select_checks
from experiments.compressions.run_checks import CHECKS
from experiments.lectures.lines import LectureLine
from experiments.system_info import read_system_info


class StoredResults:
    """The results in a folder: ``studies/``, ``checks/`` and ``analyses/``.

    Verdicts are computed again from what was measured, by the present rules.
    """

    def __init__(self, folder: Path) -> None:
        files = sorted((folder / "studies").glob(f"*/{RESULT_FILE}"))
        self._studies = {file.parent.name: _read_json(file) for file in files}
        checks = folder / "checks" / CHECKS
        self._checks = _read_json(checks) if checks.is_file() else {}
        self._verdicts = dict[str, Sequence[StudyVerdict]]()
        self._analyses = {
            file.stem: read_claims(file) for file in sorted((folder / "analyses").glob("*.json"))
        }
        self._texts: dict[str, Callable[[str], str]] = {
            "recipe": _recipe_text,
            "study": self._study_text,
            "analysis": self._analysis_text,
            "check": self._check_text,
            "report": _report_text,
        }

    def text(self, line: LectureLine) -> str:
        """Return the results of all references of a line."""
        texts = (self._texts[kind](name) for kind, name in line.items() if kind in self._texts)
        return "; ".join(texts)

    def claim_labels(self, lines: Iterable[LectureLine]) -> dict[str, Counter[str]]:
        """Return how often each verdict occurs: of studies, claims of analyses, checked values."""
        references = dict.fromkeys(reference for line in lines for reference in line.items())
        counts = {"studies": Counter[str](), "analyses": Counter[str](), "checks": Counter[str]()}
        for kind, name in references:
            if kind == "study":
                counts["studies"][self._study_label(name)] += 1
            elif kind == "analysis":
                for model in self._analyses:
                    counts["analyses"] += Counter(self._labels_of_analysis(model, name))
            elif kind == "check":
                counts["checks"] += Counter(self._labels_of_check(name))
        return counts

    def _study_verdicts(self, name: str) -> Sequence[StudyVerdict] | None:
        """Return the verdicts on all parts of a study; None if it was not run."""
        result = self._studies.get(name)
        if result is not None and name not in self._verdicts:
            study = Study.model_validate(result["study"])
            verdicts = evaluate(study, stored_results(result), result["max_seeds"])
            self._verdicts[name] = verdicts
        return self._verdicts.get(name)

    def _study_label(self, name: str) -> str:
        verdicts = self._study_verdicts(name)
        return "not run" if verdicts is None else overall_label(verdicts)

    def _study_text(self, name: str) -> str:
        verdicts = self._study_verdicts(name)
        if verdicts is None:
            return f"`{name}` not run"
        parts = Counter[str](verdict.label for verdict in verdicts)
        note = f" ({_count_labels(parts)})" if len(parts) > 1 else ""
        earlier = "" if has_present_design(self._studies[name]) else ", by an earlier design"
        return f"`{name}` **{overall_label(verdicts)}**{note}{earlier}"

    def _labels_of_analysis(self, model: str, name: str) -> list[VerdictLabel]:
        return [claim.verdict for claim in self._analyses[model].get(name, ())]

    def _analysis_text(self, name: str) -> str:
        labels = {model: self._labels_of_analysis(model, name) for model in self._analyses}
        texts = [f"{model} {_count_labels(Counter(v))}" for model, v in labels.items() if v]
        return f"`{name}` {', '.join(texts) or 'not measured'}"

    def _check_outcome(self, number: str) -> CheckOutcome | None:
        (check,) = select_checks([number])
        stored = self._checks.get(number)
        return None if stored is None else CheckOutcome.from_dict(check, stored)

    def _labels_of_check(self, number: str) -> list[VerdictLabel]:
        outcome = self._check_outcome(number)
        values = () if outcome is None else outcome.values
        return [value.verdict.label for value in values if value.verdict is not None]

    def _check_text(self, number: str) -> str:
        outcome = self._check_outcome(number)
        if outcome is None:
            return f"{number} not run"
        num_met = sum(check.is_met for check in outcome.checks)
        labels = Counter[str](self._labels_of_check(number))
        measured = f"; {_count_labels(labels)}" if labels else ""
        return f"{number} {num_met} of {len(outcome.checks)} exact checks hold{measured}"


def _recipe_text(name: str) -> str:
    """Return the number of known parameter counts, and one of them; the tests check them all."""
    info = read_system_info(name)
    num_known = len(info.all_parameter_counts())
    if num_known == 0:
        return f"`{name}` without a published count"
    size = "base" if "base" in info.parameters else next(iter(info.parameters), None)
    example = "" if size is None else f"{info.parameters[size]:,} parameters ({size}), "
    return f"`{name}` {example}{num_known} exact count{'s' if num_known > 1 else ''}"


def _report_text(report: str) -> str:
    page, _, _ = report.partition(" ")
    return f"[measured](../results/{page}.md)"


def _read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _count_labels(counts: Counter[Any]) -> str:
    return ", ".join(f"{count} {label}" for label, count in counts.most_common())
