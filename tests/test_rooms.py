"""Rooms import one way, down: the contracts in pyproject.toml are kept."""

import subprocess
import sys
from pathlib import Path


def test_rooms_import_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    ended = subprocess.run(
        [linter, "--no-cache"], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout
