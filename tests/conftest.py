"""What all tests share: one thread each, reproducible examples, and where the real data lie."""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

# Before PyTorch is first imported: two workers with two threads each would fight over two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is measured of the machine is remembered nowhere.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="bertwright-tests-")

import pytest
import torch
from hypothesis import settings

from bertwright.machine.compiler import cpp_compiler
from bertwright.notices import say_once

# Whoever starts the tests in the background has them ignore Ctrl-C, and all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
CHROMIUM = shutil.which("chromium")

# The same examples in every run (a test that fails now and then tells nobody anything), and no
# deadline on the single example: the machine may be busy.
settings.register_profile("bertwright", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("bertwright")


def pytest_unconfigure() -> None:
    """Leave nothing of it behind."""
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses the real data, a browser, a compiler or a card, and leave it out where there
    are none, or where there is a card that it cannot do with."""
    card, absent = torch.cuda.is_available(), list[pytest.Item]()
    for fixture, marker, is_there in (
        ("shared_data", "real_data", SHARED_DATA.is_dir()),
        ("browser", "browser", CHROMIUM is not None),
        ("card", "cuda", card),
        (None, "compiler", compiler_works()),
        (None, "processor", not card),
    ):
        for item in items:
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
            if not is_there and item.get_closest_marker(marker):
                absent.append(item)
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]


def compiler_works() -> bool:
    """Return whether PyTorch has a C++ compiler to call."""
    compiler = cpp_compiler()
    if compiler is None:
        return False
    return subprocess.run([compiler, "--version"], capture_output=True, check=False).returncode == 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for garbage neither while libraries and tests are read, nor ever among them: they stay
    to the end, and are most of what there is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def card() -> torch.device:
    """The first card."""
    return torch.device("cuda", 0)


@pytest.fixture
def without_semaphores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system whose ``/dev/shm`` is full."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    say_once.cache_clear()
    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", full)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout."""
    return SHARED_DATA


# No longer than a module: as long as it is there, asyncio has a loop in this thread, and no other.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root it does not start with its sandbox.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()
