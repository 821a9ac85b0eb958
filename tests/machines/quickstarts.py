"""Run the quickstart under several machine settings and compare its held-out loss.

Usage: ``python -m tests.machines.quickstarts --document FILE``.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.markdown_sections import write_section
from bertwright.runtime.markdown_report import markdown_table
from tests.machines.settings import Setting, possible_settings

MAX_DIFFERENCE = 0.1
"""Largest difference of held-out losses, in nats."""

MAX_SECONDS = 600.0
"""Time limit of a quickstart."""

COLUMNS = {
    "name": "setting",
    "seconds": "seconds",
    "loss": "held-out masked loss, nats",
    "difference": "difference from the first",
    "log": "log lines about compilation",
}


def run(setting: Setting, folder: Path, minutes: float) -> dict[str, Any]:
    """Run the quickstart under a setting; return its table row."""
    command = [sys.executable, "-m", "bertwright", "quickstart", "-o", str(folder / "out")]
    command += ["--minutes", str(minutes), "--json"]
    start = time.monotonic()
    process = subprocess.run(
        command,
        env=setting.environment(folder),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.monotonic() - start
    if process.returncode:
        raise SystemExit(f"{setting.name}: {process.stderr}")
    lines = process.stderr.replace("\r", "\n").splitlines()
    compilation = [line for line in lines if "compile" in line and not line.startswith("training")]
    return {
        "name": setting.name,
        "seconds": round(seconds),
        "loss": json.loads(process.stdout)["heldout_loss"],
        "log": "; ".join(dict.fromkeys(compilation)),
    }


def main() -> None:
    """Run all settings and print the table; exit with 1 if one is too slow or differs too much."""
    prog = "python -m tests.machines.quickstarts"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("--document", type=Path, help="Markdown file to write the table into")
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes of pre-training")
    arguments = parser.parse_args()
    rows, failures = list[dict[str, Any]](), list[str]()
    for setting, folder in possible_settings():
        row = run(setting, folder, arguments.minutes)
        difference = row["loss"] - (rows or [row])[0]["loss"]
        rows.append({**row, "difference": difference})
        differs = abs(difference) > MAX_DIFFERENCE and not setting.slower
        failures += [setting.name] * (differs or row["seconds"] > MAX_SECONDS)
        print(json.dumps(rows[-1]), flush=True)
    lines = markdown_table(COLUMNS, rows)
    print(*lines, sep="\n")
    if arguments.document is not None:
        write_section(arguments.document, "the quickstart on several settings", lines)
    if failures:
        raise SystemExit("too slow, or another loss: " + "; ".join(failures))


if __name__ == "__main__":
    main()
