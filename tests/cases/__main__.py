"""Run the tests of every input that once failed: ``python -m tests.cases --document FILE``."""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import yaml

from benchmarks.markdown_sections import write_section
from bertwright.runtime.markdown_report import markdown_table

HERE = Path(__file__).parent
TESTS = HERE.parent


@dataclass(frozen=True)
class Case:
    """An input that once failed, what happens now, and the node ids of its tests."""

    area: str
    case: str
    now: str
    tests: tuple[str, ...]


def cases() -> list[Case]:
    """Return every case of cases.yaml."""
    areas = yaml.safe_load((HERE / "cases.yaml").read_text())
    return [
        Case(area, entry["case"], entry["now"], tuple(entry["tests"]))
        for area, entries in areas.items()
        for entry in entries
    ]


def run(node_ids: list[str], workers: int) -> tuple[Counter[str], Counter[str]]:
    """Return the numbers of passed and failed tests, by file and by node id without parameters."""
    passed, failed = Counter[str](), Counter[str]()
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-o"]
        command += ["junit_family=xunit1", f"--junitxml={report.name}"]
        subprocess.run([*command, *node_ids], cwd=TESTS, stdout=sys.stderr, check=False)
        for test in ElementTree.parse(report.name).iter("testcase"):
            file = test.attrib["file"].removeprefix("tests/")
            name = test.attrib["name"].split("[")[0]
            count = failed if len(test) else passed
            count.update([file, f"{file}::{name}"])
    return passed, failed


def main() -> None:
    """Run the tests of all cases and print the table; exit with 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("--document", type=Path, help="Markdown file to write the table into")
    parser.add_argument("--workers", type=int, default=2, help="parallel test processes")
    arguments = parser.parse_args()
    all_cases = cases()
    node_ids = sorted({node_id for case in all_cases for node_id in case.tests})
    passed, failed = run(node_ids, arguments.workers)
    rows = [
        {
            "area": case.area,
            "case": case.case,
            "now": case.now,
            "passed": sum(passed[node_id] for node_id in case.tests),
            "failed": sum(failed[node_id] for node_id in case.tests),
        }
        for case in all_cases
    ]
    columns = {
        "area": "area",
        "case": "input",
        "now": "what happens now",
        "passed": "passed tests",
        "failed": "failed tests",
    }
    lines = markdown_table(columns, rows)
    print(*lines, sep="\n")
    if arguments.document is not None:
        write_section(arguments.document, "inputs that once went wrong", lines)
    failures = [str(row["case"]) for row in rows if row["failed"] or not row["passed"]]
    if failures:
        raise SystemExit("failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()
