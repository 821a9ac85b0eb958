"""What all tests share: one thread each, reproducible examples, and where the real data lie."""

import os
import signal
import tempfile
from pathlib import Path

# Before PyTorch is first imported: two workers with two threads each would fight over two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is measured of the machine is remembered nowhere.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="bertwright-tests-")

import pytest
from hypothesis import settings

# Whoever starts the tests in the background has them ignore Ctrl-C, and all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"

# The same examples in every run (a test that fails now and then tells nobody anything), and no
# deadline on the single example: the machine may be busy.
settings.register_profile("bertwright", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("bertwright")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses the real data, and leave it out where there are none."""
    real = [item for item in items if "shared_data" in getattr(item, "fixturenames", ())]
    for item in real:
        item.add_marker("real_data")
    if SHARED_DATA.is_dir():
        return
    absent = [item for item in items if item.get_closest_marker("real_data")]
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout."""
    return SHARED_DATA
