"""Packages import in one direction: the contracts in pyproject.toml hold."""

import subprocess
import sys
from pathlib import Path

from checkout import CHECKOUT


def test_packages_import_in_one_direction() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    process = subprocess.run([linter, "--no-cache"], cwd=CHECKOUT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
