"""Every analysis has the expected values on planted models."""

from collections.abc import Iterator
from typing import Any

import pytest

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.result import AnalysisResult
from bertwright.analysis.core.runner import ANALYSIS_GROUPS
from experiments.analyses.expectations import LEARNED_CHECKS, PLANTED_CHECKS
from full_suite import full_except
from recorded_values import RecordedValues, finding_values, recorded_values

FINE_TUNED = ("frozen-or-tuned", "malformed-input", "pretraining-benefit")
"""Analyses of models that the check fine-tunes, whose values depend on the processor."""

KINDS = Analysis.kinds() if ANALYSIS_GROUPS else {}


@pytest.fixture(scope="module")
def planted(request: pytest.FixtureRequest) -> Iterator[RecordedValues]:
    with recorded_values("planted-analyses", request.config) as values:
        yield values


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[AnalysisResult]:
    """Return a list to which the results of all analyses of the test are added."""
    results: list[AnalysisResult] = []
    for kind in Analysis.kinds().values():
        run = kind.run

        def run_and_keep(self: Analysis, inputs: AnalysisInput, run: Any = run) -> AnalysisResult:
            results.append(run(self, inputs))
            return results[-1]

        monkeypatch.setattr(kind, "run", run_and_keep)
    return results


@pytest.mark.parametrize("kind", KINDS)
def test_every_analysis_has_a_check(kind: str) -> None:
    assert kind in PLANTED_CHECKS or kind in LEARNED_CHECKS


LONG_CHECKS = (
    *("edge-probe", "seeds", "attention-or-states", "frozen-or-tuned", "pretraining-benefit"),
    *("translation-heads", "learned-masks", "description-length", "inter-sentence-coherence"),
    "coreference-probe",
)
"""Checks that take seconds, which ``make analyses`` runs, too."""


@pytest.mark.parametrize("kind", full_except(PLANTED_CHECKS, PLANTED_CHECKS.keys() - LONG_CHECKS))
def test_values_are_as_expected(
    kind: str, results: list[AnalysisResult], planted: RecordedValues
) -> None:
    expected = list(PLANTED_CHECKS[kind]())
    assert expected
    assert not [str(value) for value in expected if not value.is_met]
    if kind not in FINE_TUNED:
        values = {f"expected.{number}": value.value for number, value in enumerate(expected)}
        planted.compare(kind, values | finding_values(results), relative=2e-2, absolute=1e-2)
