"""Invalid inputs, kills and full disks: a short run of ``make fuzz``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import CHECKOUT


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("inputs", "--count", "300"), "inputs"),
        (("kills", "--count", "8", "--only", "prepare"), "kills"),
        (("kills", "--count", "4", "--only", "predict"), "kills"),
        (("disk", "--count", "3", "--only", "finetune"), "full_disks"),
    ],
    ids=lambda words: words if isinstance(words, str) else " ".join(words),
)
def test_there_are_no_findings(words: tuple[str, ...], number: str, tmp_path: Path) -> None:
    document = tmp_path / "machines.md"
    process = subprocess.run(
        [sys.executable, "-m", "fuzz", *words, "--seed", "7", "--json", "--document", document],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    report = json.loads(process.stdout)
    assert report["findings"] == []
    assert process.returncode == 0
    assert report[number] >= 3
    assert f"| {number.replace('_', ' ')} | {report[number]:,} |" in document.read_text()
