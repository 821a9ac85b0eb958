"""The page of claims: every claim that has a study, with its verdict."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.markdown_sections import write_section
from bertwright.core.errors import UserError
from bertwright.runtime.markdown_report import markdown_table
from bertwright.studies.report import RESULT_FILE, report_lines, result_dict, stored_results
from bertwright.studies.study import Study, load_all_studies


def write_claims(results: Path, document: Path) -> None:
    """Write the table of all claims with their lectures, and a section for each with a result.

    ``results`` has a folder per study, as ``study run`` writes them. Sections of studies without a
    result there are unchanged.
    """
    results_by_name = _load_results(results)
    rows = [_claim_row(study, results_by_name.get(study.name)) for study in load_all_studies()]
    columns = {
        "system": "system",
        "lectures": "lectures",
        "question": "question",
        "study": "study",
        "verdict": "verdict",
        "body": "body",
        "equal": "equal",
        "seeds": "seeds",
    }
    lectures = [f"- {key}: {title}" for key, title in LECTURES.items()]
    lines = [*markdown_table(columns, rows), "", _summary(results_by_name.values()), "", *lectures]
    write_section(document, "claims", lines)
    for result in results_by_name.values():
        write_result(result, document)


def write_result(result: dict[str, Any], document: Path) -> None:
    """Write the section of one study."""
    name, lines = result["study"]["name"], report_lines(result)
    write_section(document, name, [f"## {name}", "", *lines], result["provenance"])


def re_evaluate(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored result with verdicts computed again by the present rules."""
    study = Study.model_validate(result["study"])
    again = result_dict(study, stored_results(result), result["max_seeds"])
    return {**again, "provenance": result["provenance"]}


def has_present_design(result: Mapping[str, Any]) -> bool:
    """Return whether a stored result compares what the study with its name compares today."""
    stored = Study.model_validate(result["study"])
    return _design(stored) == _design(Study.load(stored.name))


def _design(study: Study) -> dict[str, Any]:
    """Return what a study compares, without the words of its question."""
    return {**study.as_dict(), "question": "", "source": ""}


def _load_results(folder: Path) -> dict[str, dict[str, Any]]:
    files = sorted(folder.glob(f"*/{RESULT_FILE}"))
    if not files:
        raise UserError(f"{folder} has no results of studies: run some with -o {folder}")
    results = [re_evaluate(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    return {result["study"]["name"]: result for result in results}


def _claim_row(study: Study, result: Mapping[str, Any] | None) -> dict[str, object]:
    row = {
        "system": study.system,
        "lectures": " ".join(lectures_of(study.system)),
        "question": f"{study.question} {study.source}".strip(),
        "study": study.name,
    }
    if result is None:
        return {**row, "verdict": "not run", "body": "", "equal": str(study.equal), "seeds": ""}
    seeds = sorted({len(by_seed) for by_seed in result["arms"].values()})
    return {
        **row,
        "verdict": _verdict_cell(result)
        + ("" if has_present_design(result) else ", by an earlier design"),
        "body": "exchanged" if result["body"]["exchanged"] else "published",
        "equal": result["equal"],
        "seeds": " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1]))),
    }


def _verdict_cell(result: Mapping[str, Any]) -> str:
    """Return the verdict of a claim, with the verdicts of its parts."""
    counts = Counter(verdict["verdict"] for verdict in result["verdicts"])
    if len(counts) == 1:
        return f"**{result['verdict']}**"
    parts = ", ".join(f"{count} {label}" for label, count in counts.items())
    return f"**{result['verdict']}** ({parts})"


def _summary(results: Iterable[Mapping[str, Any]]) -> str:
    """Return how many claims, and how many of their parts, have which verdict."""
    results = list(results)
    claims = Counter(result["verdict"] for result in results)
    parts = Counter(verdict["verdict"] for result in results for verdict in result["verdicts"])
    return (
        f"Of {claims.total()} claims {_counts(claims)}; of their {parts.total()} parts "
        f"{_counts(parts)}."
    )


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} are *{label}*" for label, count in counts.most_common())


LECTURES: dict[str, str] = {
    "S0": "Lobacheva, BERT model, its analysis and modifications",
    "S1": "BERT, RoBERTa and GPT-2, a lecture",
    "S2": "BERTology, notes of a course",
    "S3": "Applied Deep Learning 2022, More BERT",
    "S4": "Khrylchenko 2021, Transfer learning, ELMo, BERT and modifications",
}

_SYSTEMS_BY_LECTURE: dict[str, str] = {
    "S0": "5 7 9 10 11 12 13 14 15 16 17 18 19 23 29 31",
    "S1": "3 4 5 6 7 9 18 19 20 27",
    "S2": "7 8 10 12 14 29 30",
    "S3": "7 8 9 10 15 18 19 20 23",
    "S4": "1 2 3 4 5 6 7 9 12 15 17 18 19 20 22 23 24 25 26 27 28 34 35 36 37",
}


def lectures_of(systems: str) -> list[str]:
    """Return the keys of the lectures on a system, ``A9``, or on one of ``A35, A36``."""
    numbers = set(systems.replace("A", "").split(", "))
    return [key for key, known in _SYSTEMS_BY_LECTURE.items() if numbers & set(known.split())]
