"""A pytest plugin that records which lines every test runs, how long it takes, and all imports.

The environment variable ``MUTATION_COVERAGE`` names the JSON file to write, and
``MUTATION_SOURCE`` the folders of the code, separated by colons.
"""

import json
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

_SOURCES = os.environ["MUTATION_SOURCE"].split(":")
_COVERAGE = coverage.Coverage(data_file=None, source=_SOURCES, config_file=False)
_COVERAGE.start()
_durations: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the lines of a test under its name."""
    _COVERAGE.switch_context(item.nodeid)
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        _durations[item.nodeid] = time.perf_counter() - start
        _COVERAGE.switch_context("")


def pytest_sessionfinish() -> None:
    """Write durations, the tests of every line of every file, and what was imported."""
    _COVERAGE.stop()
    data = _COVERAGE.get_data()
    lines = {
        os.path.relpath(file): {
            line: [name for name in names if name]
            for line, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    Path(os.environ["MUTATION_COVERAGE"]).write_text(
        json.dumps({"durations": _durations, "lines": lines, "modules": sorted(sys.modules)}),
        encoding="utf-8",
    )
