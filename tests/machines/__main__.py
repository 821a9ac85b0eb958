"""Run numerical tests under several machine settings and compare the results.

``make test-machines`` runs, under every setting, the tests of numerical packages, ``doctor
--machine``, and short trainings whose losses must agree across settings up to rounding. Settings
whose instruction set this processor lacks are skipped with a message.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown_sections import write_section
from bertwright.runtime.markdown_report import markdown_table
from tests.machines.settings import Setting, possible_settings

HERE = Path(__file__).parent
TESTS = HERE.parent
TEST_FOLDERS = (
    "unit/runtime",
    "unit/modules",
    "unit/encoder",
    "unit/objectives",
    "unit/optimisers",
    "unit/models",
    "unit/training/compilation",
)

TOLERANCES = {"float32": 1e-4, "bf16": 5e-3}
"""Relative tolerance of losses, by precision."""

DOCTOR_SECONDS = 60.0
"""Time limit of ``doctor --machine``."""


@dataclass
class Result:
    """Result of a setting."""

    name: str
    tests: str
    seconds: float
    doctor_seconds: float
    failed_checks: list[str]
    losses: dict[str, list[float]]


def run(setting: Setting, folder: Path, workers: int) -> Result:
    """Run everything under one setting, with empty caches."""
    environment = setting.environment(folder)

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd=TESTS.parent, check=False
        )

    start = time.monotonic()
    doctor = python("-m", "bertwright", "doctor", "--machine", "--json")
    doctor_seconds = time.monotonic() - start
    checks = json.loads(doctor.stdout)["checks"]
    trainings = python(str(HERE / "losses.py"))
    if trainings.returncode:
        raise SystemExit(f"{setting.name}: {trainings.stderr}")
    start = time.monotonic()
    folders = [str(TESTS / folder) for folder in TEST_FOLDERS]
    tests = python("-m", "pytest", "-q", "-n", str(workers), *folders)
    seconds = time.monotonic() - start
    print(tests.stdout[-2000:] if tests.returncode else "", end="", file=sys.stderr)
    return Result(
        setting.name,
        "failed" if tests.returncode else "passed",
        seconds,
        doctor_seconds,
        [f"{check['name']}: {check['detail']}" for check in checks if not check["ok"]],
        json.loads(trainings.stdout),
    )


def differences(first: Result, other: Result) -> list[str]:
    """Return the names of the trainings whose losses differ by more than the tolerance."""
    return [
        name
        for name, losses in first.losses.items()
        if any(
            abs(a - b) > TOLERANCES[name.split(", ")[1]] * abs(a)
            for a, b in zip(losses, other.losses[name], strict=True)
        )
    ]


def main() -> None:
    """Run all settings and print their results; exit with 1 if one fails."""
    parser = argparse.ArgumentParser(prog="make test-machines", description=__doc__)
    parser.add_argument("--document", type=Path, help="Markdown file to write the table into")
    parser.add_argument("--workers", type=int, default=2, help="parallel test processes")
    arguments = parser.parse_args()
    results, failures = list[Result](), list[str]()
    for setting, folder in possible_settings():
        result = run(setting, folder, arguments.workers)
        results.append(result)
        failures += [f"{setting.name}: {name}" for name in differences(results[0], result)]
        failures += [f"{setting.name}: tests"] * (result.tests == "failed")
        expected = [] if setting.finding is None else [setting.finding]
        if [c for c in result.failed_checks if not any(text in c for text in expected)] or (
            expected and not result.failed_checks
        ):
            failures.append(f"{setting.name}: checks of doctor")
        if result.doctor_seconds > DOCTOR_SECONDS:
            failures.append(f"{setting.name}: doctor took {result.doctor_seconds:.0f} s")
        print(f"{setting.name}: tests {result.tests} in {result.seconds:.0f} s", flush=True)
    lines = _table(results)
    print(*lines, sep="\n")
    if arguments.document is not None:
        write_section(arguments.document, "settings of one machine", lines)
    if failures:
        raise SystemExit("failed: " + "; ".join(failures))


def _table(results: list[Result]) -> list[str]:
    columns = {
        "name": "setting",
        "tests": "tests",
        "seconds": "seconds",
        "doctor": "doctor, seconds",
        "failed": "failed checks of doctor",
        "differences": "losses that differ",
    }
    rows = [
        {
            "name": result.name,
            "tests": result.tests,
            "seconds": round(result.seconds),
            "doctor": round(result.doctor_seconds),
            "failed": "; ".join(result.failed_checks) or "nothing",
            "differences": ", ".join(differences(results[0], result)) or "none",
        }
        for result in results
    ]
    return markdown_table(columns, rows)


if __name__ == "__main__":
    main()
