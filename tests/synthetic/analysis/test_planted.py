"""Every analysis has the expected values on planted models."""

import pytest

from bertwright.analysis.core.analysis import Analysis
from bertwright.analysis.core.runner import ANALYSIS_GROUPS
from experiments.analyses.expectations import LEARNED_CHECKS, PLANTED_CHECKS

KINDS = Analysis.kinds() if ANALYSIS_GROUPS else {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_analysis_has_a_check(kind: str) -> None:
    assert kind in PLANTED_CHECKS or kind in LEARNED_CHECKS


@pytest.mark.parametrize("kind", PLANTED_CHECKS)
def test_values_are_as_expected(kind: str) -> None:
    expected = list(PLANTED_CHECKS[kind]())
    assert expected
    assert not [str(value) for value in expected if not value.is_met]
