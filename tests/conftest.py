"""Shared set-up of all tests: one thread, reproducible examples, optional resources."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Before PyTorch is first imported: two workers with two threads each would fight over two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Measurements of the machine are not kept.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="bertwright-tests-")

import pytest
import torch
from hypothesis import settings

from bertwright.core.messages import print_once
from bertwright.runtime.compiler import cpp_compiler
from bertwright.runtime.process import configure_process
from forked_processes import preloaded_processes
from registrations import temporary_registrations

__all__ = ["preloaded_processes"]

configure_process()

# Files of tests need not survive the machine, and a disk can take long to write.
os.fsync = lambda fd: None

# Tests in the background would ignore Ctrl-C, and so would their child processes.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
CHROMIUM = shutil.which("chromium")
NODE_PACKAGES = Path(__file__).parent / "parity" / "javascript" / "node_modules"

# The same examples in every run, and no deadline per example: the machine may be busy.
settings.register_profile("bertwright", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("bertwright")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--full``: run the tests that are marked ``full``, too; and ``--record``."""
    parser.addoption("--full", action="store_true", help="run every test, for every recipe")
    parser.addoption("--record", action="store_true", help="replace the values of tests/recorded")


def pytest_unconfigure() -> None:
    """Remove the cache."""
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need real data, a browser, a compiler, a GPU or none, and deselect those that
    cannot run here, and without ``--full`` those that repeat another recipe."""
    has_gpu, deselected = torch.cuda.is_available(), set[pytest.Item]()
    for fixture, marker, is_available in (
        ("shared_data", "real_data", SHARED_DATA.is_dir()),
        ("browser", "browser", CHROMIUM is not None),
        ("card", "cuda", has_gpu),
        (None, "compiler", compiler_works()),
        (None, "javascript", NODE_PACKAGES.is_dir() and shutil.which("node") is not None),
        (None, "llama_cpp", find_spec("llama_cpp") is not None),
        (None, "processor", not has_gpu),
        (None, "linux", sys.platform == "linux"),
        (None, "full", config.getoption("--full")),
    ):
        for item in items:
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
            if not is_available and item.get_closest_marker(marker):
                deselected.add(item)
    if deselected:
        config.hook.pytest_deselected(items=[item for item in items if item in deselected])
        items[:] = [item for item in items if item not in deselected]


def compiler_works() -> bool:
    """Return True if PyTorch has a working C++ compiler."""
    compiler = cpp_compiler()
    if compiler is None:
        return False
    return subprocess.run([compiler, "--version"], capture_output=True, check=False).returncode == 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection while tests are collected, and exclude those objects from it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def card() -> torch.device:
    """The first GPU."""
    return torch.device("cuda", 0)


@pytest.fixture
def temporary_plugins() -> Iterator[None]:
    """Undo what the test registers."""
    with temporary_registrations():
        yield


@pytest.fixture
def without_semaphores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system whose ``/dev/shm`` is full."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    print_once.cache_clear()
    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", full)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout."""
    return SHARED_DATA


# Per module: while it runs, asyncio has its only loop in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox does not work as root.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
