"""Every analysis finds what is planted for it, or what a model was taught that it asks of."""

import pytest

from bertwright.analysis.analysis import Analysis
from bertwright.analysis.planted.expectations import LEARNED, PLANTED
from bertwright.analysis.running import ROOMS

KINDS = Analysis.kinds() if ROOMS else {}


@pytest.mark.parametrize("kind", KINDS)
def test_something_is_expected_of_it(kind: str) -> None:
    assert kind in PLANTED or kind in LEARNED


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_expected_holds(kind: str) -> None:
    expected = list(PLANTED[kind]())
    assert expected
    assert not [str(each) for each in expected if not each.holds]
