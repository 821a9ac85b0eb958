"""The page of one token has the values that its command computes."""

import importlib.util
import re
from types import ModuleType

import pytest

from checkout import DOCUMENTS

NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_token", DOCUMENTS / "one_token.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_command_writes(script: ModuleType) -> None:
    stored, now = script.DOCUMENT.read_text(), script.write()
    remedy = "run: python docs/one_token.py"
    assert NUMBER.sub("#", now) == NUMBER.sub("#", stored), remedy
    # Other processors round differently, which 250 steps amplify.
    expected = pytest.approx([float(n) for n in NUMBER.findall(stored)], rel=0.02, abs=0.02)
    assert [float(n) for n in NUMBER.findall(now)] == expected, remedy
