"""Every published claim keeps its sign and its baseline, and its verdict follows from them."""

from pathlib import Path

import pytest

from bertwright.analysis.core.claims import Claim, significant_findings
from bertwright.analysis.core.result import StoredResult
from bertwright.analysis.core.runner import select_analyses

CLAIMS = Path(__file__).with_name("claims.txt").read_text(encoding="utf-8").splitlines()
"""The claims about a single finding, in the order of the analyses: above or below a baseline."""


def claims_of_findings() -> list[tuple[str, Claim]]:
    return [
        (analysis.kind_name(), claim)
        for analysis in select_analyses([])
        for claim in analysis.claims
        if isinstance(claim.metric, str)
    ]


def describe(kind: str, claim: Claim) -> str:
    layer = "" if claim.layer is None else f" in the {claim.layer} layer"
    side = {"above": ">", "below": "<"}[claim.direction]
    baseline = "its baseline" if claim.baseline is None else f"{claim.baseline:.4g}"
    condition = " if present" if claim.is_optional else ""
    return f"{kind}: {claim.metric}{layer} {side} {baseline}{condition}"


CLAIM_OF_LINE = {describe(kind, claim): claim for kind, claim in claims_of_findings()}


def test_claims_are_as_published() -> None:
    assert list(CLAIM_OF_LINE) == CLAIMS


@pytest.mark.parametrize("line", CLAIMS)
def test_a_claim_is_seen_on_its_side_only(line: str) -> None:
    """A finding on the stated side is seen, on the other side opposite, and on both undecided."""
    claim = CLAIM_OF_LINE[line]
    sign = 1 if " > " in line else -1
    # The baseline of the finding counts only if the claim states none.
    stated = line.removesuffix(" if present").split()[-1]
    baseline = 0.25 if stated == "baseline" else float(stated)
    for low, high, verdict in (
        (0.1, 0.3, "seen"),
        (-0.3, -0.1, "opposite"),
        (-0.1, 0.3, "undecided"),
    ):
        bounds = sorted([baseline + sign * low, baseline + sign * high])
        finding = {
            "metric": claim.metric,
            "value": sum(bounds) / 2,
            "interval": bounds,
            "num_units": 100,
            "baseline": {"name": "other", "value": 0.25},
            "p_value": 0.01,
            "adjusted_p_value": 0.01,
        }
        if claim.layer is not None:
            finding["layer"] = 0
        result = claim.check(StoredResult({}, [finding], {}))
        assert result is not None
        assert result.verdict == verdict
        assert result.baseline == pytest.approx(baseline, abs=1e-4)


@pytest.mark.parametrize(
    ("as_fraction", "value", "baseline", "baseline_text"),
    [(True, 31 / 72, 0.5, "36 (half of them)"), (False, 31, 0.0, "0 (half of them)")],
)
def test_counts_are_shown_as_counts(
    as_fraction: bool, value: float, baseline: float, baseline_text: str
) -> None:
    p_values = [0.01] * 31 + [0.2] * 41
    findings = [{"metric": "loss", "value": 0.1, "adjusted_p_value": p} for p in p_values]
    metric = significant_findings(1, "heads", as_fraction=as_fraction)
    claim = Claim("claim", "published", metric, baseline, "half of them", "below")
    result = claim.check(StoredResult({"num_texts": 30}, findings, {}))
    assert result is not None
    assert result.value == value
    assert result.value_text == "31 of 72 heads"
    assert result.baseline_text == baseline_text
    assert result.as_dict()["count"] == {"number": 31, "total": 72, "unit": "heads"}
    assert result.verdict == ("seen" if as_fraction else "opposite")
