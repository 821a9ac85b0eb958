"""Packages import in one direction: the contracts in pyproject.toml hold."""

import subprocess
import sys
from pathlib import Path


def test_packages_import_in_one_direction() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    process = subprocess.run(
        [linter, "--no-cache"], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout
