"""A pytest plugin that records which lines every test runs, its time, and all imports.

What a fixture runs that several tests share counts for all of them. Time is that of the processor,
so that it does not depend on other programs.

The environment variable ``MUTATION_COVERAGE`` names the JSON file to write, and
``MUTATION_SOURCE`` the folders of the code, separated by colons.
"""

import json
import os
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import coverage
import pytest

_SOURCES = os.environ["MUTATION_SOURCE"].split(":")
_COVERAGE = coverage.Coverage(data_file=None, source=_SOURCES, config_file=False)
_COVERAGE.start()
_context = ""
_durations: dict[str, float] = {}
_tests_of_fixture: dict[str, list[str]] = {}


def _switch(context: str) -> str:
    """Record the next lines under a name; return the one before."""
    global _context
    before, _context = _context, context
    _COVERAGE.switch_context(context)
    return before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the lines of a test under its name."""
    before, start = _switch(item.nodeid), time.process_time()
    for fixture in getattr(item, "fixturenames", ()):
        _tests_of_fixture.setdefault(f"fixture {fixture}", []).append(item.nodeid)
    try:
        return (yield)
    finally:
        _durations[item.nodeid] = time.process_time() - start
        _switch(before)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object],
) -> Generator[None, object, object]:
    """Record the lines of a fixture under its name, if several tests may share it."""
    shared = fixturedef.scope != "function"
    before = _switch(f"fixture {fixturedef.argname}" if shared else _context)
    try:
        return (yield)
    finally:
        _switch(before)


def _tests_in(context: str) -> Iterator[str]:
    """Yield the tests of a recorded name."""
    if context.startswith("fixture "):
        yield from _tests_of_fixture.get(context, ())
    elif context:
        yield context


def pytest_sessionfinish() -> None:
    """Write durations, the tests of every line of every file, and what was imported."""
    _COVERAGE.stop()
    data = _COVERAGE.get_data()
    contexts = {
        os.path.relpath(file): data.contexts_by_lineno(file) for file in data.measured_files()
    }
    lines = {
        file: {
            line: sorted({test for context in of_line for test in _tests_in(context)})
            for line, of_line in of_file.items()
        }
        for file, of_file in contexts.items()
    }
    imported = {
        file: [line for line, of_line in of_file.items() if "" in of_line]
        for file, of_file in contexts.items()
    }
    measured = {"durations": _durations, "lines": lines, "imported": imported}
    Path(os.environ["MUTATION_COVERAGE"]).write_text(
        json.dumps({**measured, "modules": sorted(sys.modules)}), encoding="utf-8"
    )
