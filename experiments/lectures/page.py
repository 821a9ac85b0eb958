"""The page of the lectures: what they hold, where it is in bertwright, and its results."""

from collections import Counter
from pathlib import Path

from benchmarks.markdown_sections import write_section
from bertwright.core.errors import UserError
from bertwright.runtime.markdown_report import markdown_table
from experiments.claims_page import LECTURES
from experiments.lectures.lines import LectureLine, all_lines, load_parts
from experiments.lectures.references import check_references, show_references
from experiments.lectures.results import StoredResults

SECTION = "lectures"

COLUMNS = {
    "id": "number",
    "what": "what",
    "source": "source",
    "lectures": "lectures",
    "where": "where",
    "result": "verdict or result",
}

COMMAND = "python -m experiments lectures docs/results --document docs/concepts/lectures.md"

TITLES = {
    "studies": "studies",
    "analyses": "claims of analyses",
    "checks": "expectations in checks of compression",
}


def write_lectures(results: Path, document: Path) -> None:
    """Write the table, with the results in a folder such as ``docs/results``.

    Errors: UserError for a folder that does not exist, and a line whose reference leads nowhere.
    """
    if not results.is_dir():
        raise UserError(f"{results} is not a folder: name the folder of results, docs/results")
    check_references(all_lines())
    stored = StoredResults(results)
    lines = [_summary(stored), "", *(f"- {key}: {title}" for key, title in LECTURES.items())]
    for part in load_parts():
        lines += ["", f"## {part.title}"]
        for section in part.sections:
            rows = [_table_row(line, stored) for line in section.lines]
            lines += ["", f"### {section.title}", "", *markdown_table(COLUMNS, rows)]
    write_section(document, SECTION, lines, f"`{COMMAND}` writes these tables.")


def _table_row(line: LectureLine, stored: StoredResults) -> dict[str, object]:
    return {
        "id": line.id,
        "what": line.what,
        "source": line.source,
        "lectures": " ".join(line.all_lectures),
        "where": show_references(line),
        "result": stored.text(line),
    }


def _summary(stored: StoredResults) -> str:
    """Return how many lines there are, and how often each verdict occurs."""
    lines = all_lines()
    num_out = sum(bool(line.out_of_scope) for line in lines)
    sentences = [f"Of {len(lines)} lines {num_out} are out of scope, for the stated reason."]
    for kind, counts in stored.claim_labels(lines).items():
        if counts:
            sentences.append(f"Of {counts.total()} {TITLES[kind]}, {_shares(counts)}.")
    return " ".join(sentences)


def _shares(counts: Counter[str]) -> str:
    return ", ".join(f"{count} are *{label}*" for label, count in counts.most_common())
