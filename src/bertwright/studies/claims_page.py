"""The page of claims: every claim that has a study, and what has become of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertwright.document import table, write_section
from bertwright.errors import UserError
from bertwright.studies.lectures import LECTURES, lectures_of
from bertwright.studies.report import RESULT, judged_anew, lines
from bertwright.studies.study import Study, all_studies


def write_claims(results: Path, document: Path) -> None:
    """Write the table of all claims, with the lectures that tell of their systems, and a section
    for each that has been studied.

    ``results`` holds a folder per study, as ``study run`` leaves them. Sections of studies that
    have no result there stay as they are.
    """
    found = _results(results)
    rows = [_row(study, found.get(study.name)) for study in all_studies()]
    columns = {
        "system": "system",
        "lectures": "told in",
        "question": "question",
        "study": "study",
        "verdict": "verdict",
        "equal": "equal",
        "seeds": "seeds",
    }
    told = [f"- {key}: {title}" for key, title in LECTURES.items()]
    write_section(document, "claims", [*table(columns, rows), "", *told])
    for result in found.values():
        write_result(result, document)


def write_result(result: dict[str, Any], document: Path) -> None:
    """Write the section of one study."""
    name = result["study"]["name"]
    write_section(document, name, [f"## {name}", "", *lines(result)], result["origin"])


def _results(folder: Path) -> dict[str, dict[str, Any]]:
    files = sorted(folder.glob(f"*/{RESULT}"))
    if not files:
        raise UserError(f"{folder} holds no results of studies: run some with -o {folder}")
    read = [judged_anew(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    return {result["study"]["name"]: result for result in read}


def _row(study: Study, result: Mapping[str, Any] | None) -> dict[str, object]:
    return {
        "system": study.system,
        "lectures": " ".join(lectures_of(study.system)),
        "question": f"{study.question} {study.source}".strip(),
        "study": study.name,
        "verdict": "not run" if result is None else _verdict(result),
        "equal": str(study.equal) if result is None else result["equal"],
        "seeds": "" if result is None else str(result["study"]["seeds"]),
    }


def _verdict(result: Mapping[str, Any]) -> str:
    """That of the whole claim, and how many of its parts were seen."""
    parts = [verdict["verdict"] for verdict in result["verdicts"]]
    return f"**{result['verdict']}** ({parts.count('seen')} of {len(parts)} parts seen)"
