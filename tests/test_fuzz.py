"""Strange inputs, kills and full disks: a short run of what ``make fuzz`` does at length."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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
def test_nothing_is_found(words: tuple[str, ...], number: str, tmp_path: Path) -> None:
    document = tmp_path / "machines.md"
    ended = subprocess.run(
        [sys.executable, "-m", "fuzz", *words, "--seed", "7", "--json", "--document", document],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = json.loads(ended.stdout)
    assert found["findings"] == []
    assert ended.returncode == 0
    assert found[number] >= 3
    assert f"| {number.replace('_', ' ')} | {found[number]:,} |" in document.read_text()
