"""Run random inputs, kills or full disks: ``python -m fuzz inputs|kills|disk``."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def main() -> int:
    """Return 0 where there are no findings, else 1."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=("inputs", "kills", "disk"))
    parser.add_argument("--count", type=int, help="Number of inputs, kills or full disks.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--only", help="Only one verb or kind of inputs.")
    parser.add_argument("--number", type=int, help="Only the input with this number.")
    parser.add_argument("--json", action="store_true", help="Print one line of JSON.")
    parser.add_argument("--document", type=Path, help="Markdown file to write the figures into.")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)  # a fork keeps only one thread
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        report = _run(options, Path(folder))
    print(json.dumps(report) if options.json else json.dumps(report, indent=1))
    if options.document is not None:
        from benchmarks.markdown_sections import write_section

        write_section(options.document, f"fuzz {options.target}", _lines(report))
    return 1 if report["findings"] else 0


def _lines(report: Mapping[str, Any]) -> list[str]:
    """Return a report as a Markdown table, with the number of findings."""
    from bertwright.runtime.markdown_report import markdown_table

    def text(value: Any) -> str:
        if isinstance(value, dict):
            counts = cast(dict[str, int], value)
            return ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return f"{len(value)}" if isinstance(value, list) else f"{value:,}"

    kept = {name: value for name, value in report.items() if name != "reproduce"}
    rows = [{"figure": name.replace("_", " "), "value": text(v)} for name, v in kept.items()]
    return markdown_table({"figure": "figure", "value": "value"}, rows)


def _run(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    if options.target == "kills":
        from fuzz.kills import kills

        return kills(folder, options.count or 200, options.seed, options.only)
    if options.target == "disk":
        from fuzz.disk import full_disks

        return full_disks(folder, options.count or 10, options.seed, options.only)
    from fuzz.inputs import inputs

    return inputs(folder, options.count or 100_000, options.seed, options.only, options.number)


if __name__ == "__main__":
    sys.exit(main())
