"""Invalid inputs, kills and full disks: a short run of ``make fuzz``."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from forked_processes import forks
from fuzz.__main__ import main


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("inputs", "--count", "300"), "inputs"),
        (("kills", "--count", "8", "--only", "prepare"), "kills"),
        pytest.param(
            ("kills", "--count", "4", "--only", "predict"), "kills", marks=pytest.mark.full
        ),
        pytest.param(
            ("disk", "--count", "3", "--only", "finetune"), "full_disks", marks=pytest.mark.full
        ),
    ],
    ids=lambda words: words if isinstance(words, str) else " ".join(words),
)
def test_there_are_no_findings(words: tuple[str, ...], number: str, tmp_path: Path) -> None:
    document, output = tmp_path / "machines.md", tmp_path / "report.json"
    arguments = [*words, "--seed", "7", "--json", "--document", str(document)]
    process = forks.Process(target=run_fuzz, args=(arguments, output))
    process.start()
    process.join()
    report = json.loads(output.read_text())
    assert report["findings"] == []
    assert process.exitcode == 0
    assert report[number] >= 3
    assert f"| {number.replace('_', ' ')} | {report[number]:,} |" in document.read_text()


def run_fuzz(arguments: Sequence[str], output: Path) -> None:
    """Write what ``python -m fuzz`` prints into a file, and exit with its code."""
    # Not sys.stdout: the processes that it forks close this descriptor.
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 1)
    sys.argv = ["fuzz", *arguments]
    sys.exit(main())
