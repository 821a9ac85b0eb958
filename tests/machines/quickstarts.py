"""Run the quickstart under several settings of a machine, and compare its held-out loss:
``python tests/machines/quickstarts.py --document FILE``.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from settings import Setting, possible_settings

from bertwright.document import table, write_section

LARGEST_DIFFERENCE = 0.1
"""Nats between the held-out losses of two settings."""

SECONDS = 600.0
"""Within which a quickstart ends."""

COLUMNS = {
    "name": "setting",
    "seconds": "seconds",
    "loss": "held-out masked loss, nats",
    "difference": "difference from the first",
    "log": "what the log says about compiling",
}


def run(setting: Setting, folder: Path, minutes: float) -> dict[str, Any]:
    """Return the row of a setting."""
    command = [sys.executable, "-m", "bertwright", "quickstart", "-o", str(folder / "out")]
    command += ["--minutes", str(minutes), "--json"]
    began = time.monotonic()
    ended = subprocess.run(
        command,
        env=setting.environment(folder),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.monotonic() - began
    if ended.returncode:
        raise SystemExit(f"{setting.name}: {ended.stderr}")
    lines = ended.stderr.replace("\r", "\n").splitlines()
    about = [line for line in lines if "compile" in line and not line.startswith("training")]
    return {
        "name": setting.name,
        "seconds": round(seconds),
        "loss": json.loads(ended.stdout)["heldout_loss"],
        "log": "; ".join(dict.fromkeys(about)),
    }


def main() -> None:
    """Run all settings, print the table, and exit with 1 where one is too slow or too far off."""
    parser = argparse.ArgumentParser(prog="tests/machines/quickstarts.py", description=__doc__)
    parser.add_argument("--document", type=Path, help="a Markdown file to write the table into")
    parser.add_argument("--minutes", type=float, default=5.0, help="of pre-training")
    arguments = parser.parse_args()
    rows, wrong = list[dict[str, Any]](), list[str]()
    for setting, folder in possible_settings():
        row = run(setting, folder, arguments.minutes)
        difference = row["loss"] - (rows or [row])[0]["loss"]
        rows.append({**row, "difference": difference})
        far = abs(difference) > LARGEST_DIFFERENCE and not setting.slower
        wrong += [setting.name] * (far or row["seconds"] > SECONDS)
        print(json.dumps(rows[-1]), flush=True)
    lines = table(COLUMNS, rows)
    print(*lines, sep="\n")
    if arguments.document is not None:
        write_section(arguments.document, "the quickstart on several settings", lines)
    if wrong:
        raise SystemExit("too slow, or too far off: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
