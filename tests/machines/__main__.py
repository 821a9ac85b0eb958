"""Run what computes under several settings of a machine, and compare: ``make test-machines``.

Every setting runs the tests of the rooms that compute, ``doctor --machine``, and short trainings
whose losses must be those of every other setting, up to rounding. A setting that needs instructions
which this processor lacks is left out, and that is said.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from settings import Setting, possible_settings

from bertwright.document import table, write_section

HERE = Path(__file__).parent
TESTS = HERE.parent
ROOMS = ("machine", "encoder", "objectives", "optimisers", "model", "training/compilation")

TOLERANCES = {"float32": 1e-4, "bf16": 5e-3}
"""By how much the losses of a setting may be off those of the first, relative."""


DOCTOR_SECONDS = 60.0
"""Within which ``doctor --machine`` ends on a quiet machine."""


@dataclass
class Result:
    """What a setting gave."""

    name: str
    tests: str
    seconds: float
    doctor_seconds: float
    wrong_checks: list[str]
    losses: dict[str, list[float]]


def run(setting: Setting, folder: Path, workers: int) -> Result:
    """Run everything under one setting, with caches of its own."""
    environment = setting.environment(folder)

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd=TESTS.parent, check=False
        )

    began = time.monotonic()
    doctor = python("-m", "bertwright", "doctor", "--machine", "--json")
    doctor_seconds = time.monotonic() - began
    checks = json.loads(doctor.stdout)["checks"]
    numbers = python(str(HERE / "losses.py"))
    if numbers.returncode:
        raise SystemExit(f"{setting.name}: {numbers.stderr}")
    began = time.monotonic()
    rooms = [str(TESTS / room) for room in ROOMS]
    tests = python("-m", "pytest", "-q", "-n", str(workers), *rooms)
    seconds = time.monotonic() - began
    print(tests.stdout[-2000:] if tests.returncode else "", end="", file=sys.stderr)
    return Result(
        setting.name,
        "failed" if tests.returncode else "passed",
        seconds,
        doctor_seconds,
        [f"{check['name']}: {check['detail']}" for check in checks if not check["ok"]],
        json.loads(numbers.stdout),
    )


def differences(first: Result, other: Result) -> list[str]:
    """Return the names of the trainings whose losses are further apart than rounding."""
    return [
        name
        for name, losses in first.losses.items()
        if any(
            abs(a - b) > TOLERANCES[name.split(", ")[1]] * abs(a)
            for a, b in zip(losses, other.losses[name], strict=True)
        )
    ]


def main() -> None:
    """Run all settings, print what each gave, and exit with 1 where one is wrong."""
    parser = argparse.ArgumentParser(prog="make test-machines", description=__doc__)
    parser.add_argument("--document", type=Path, help="a Markdown file to write the table into")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    results, wrong = list[Result](), list[str]()
    for setting, folder in possible_settings():
        result = run(setting, folder, arguments.workers)
        results.append(result)
        wrong += [f"{setting.name}: {name}" for name in differences(results[0], result)]
        wrong += [f"{setting.name}: tests"] * (result.tests == "failed")
        is_found = [
            setting.finding is not None and setting.finding in c for c in result.wrong_checks
        ]
        if not all(is_found) or (setting.finding is not None and not is_found):
            wrong.append(f"{setting.name}: what doctor finds")
        if result.doctor_seconds > DOCTOR_SECONDS:
            wrong.append(f"{setting.name}: doctor took {result.doctor_seconds:.0f} s")
        print(f"{setting.name}: tests {result.tests} in {result.seconds:.0f} s", flush=True)
    lines = _table(results)
    print(*lines, sep="\n")
    if arguments.document is not None:
        write_section(arguments.document, "settings of one machine", lines)
    if wrong:
        raise SystemExit("wrong: " + "; ".join(wrong))


def _table(results: list[Result]) -> list[str]:
    columns = {
        "name": "setting",
        "tests": "tests",
        "seconds": "seconds",
        "doctor": "doctor, seconds",
        "wrong": "what doctor finds wrong",
        "apart": "losses further apart than rounding",
    }
    rows = [
        {
            "name": result.name,
            "tests": result.tests,
            "seconds": round(result.seconds),
            "doctor": round(result.doctor_seconds),
            "wrong": "; ".join(result.wrong_checks) or "nothing",
            "apart": ", ".join(differences(results[0], result)) or "none",
        }
        for result in results
    ]
    return table(columns, rows)


if __name__ == "__main__":
    main()
