"""Verdicts on expectations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.core.statistics import Estimate
from bertwright.core.verdicts import Verdict, VerdictLabel
from bertwright.studies.verdict import (
    StudyVerdict,
    default_expectation,
    evaluate,
    overall_label,
)
from small_study import small_study


def verdict_label(one: list[float], other: list[float], **changes: object) -> str:
    """Return the label for losses of two arms; the first is expected to be lower."""
    study = small_study(
        expected=[{"measure": "held-out.masked_loss", "arm": "one", "below": "other", **changes}]
    )
    results = {
        arm: {seed: {"held-out.masked_loss": loss} for seed, loss in enumerate(losses)}
        for arm, losses in (("one", one), ("other", other))
    }
    return evaluate(study, results)[0].label


def test_labels() -> None:
    label, low, high = verdict_label, [1.0, 1.1, 0.9], [2.0, 2.2, 1.9]
    assert label(low, high) == "seen"
    assert label(high, low) == "opposite"
    assert label([1.0, 1.1], [2.0, 2.2]) == "undecided", "two seeds are too few"
    assert label([1.0, 1.1, 2.5], high) == "undecided", "one seed disagrees"
    assert label([1.0, 1.9, 1.99], [2.0, 2.0, 2.0]) == "undecided", "within two standard errors"
    assert label(low, high, margin=2.0) == "undecided", "below the margin"
    assert label(high, low, margin=0.5) == "opposite"


def test_arm_is_compared_with_a_number() -> None:
    low, high = [1.0, 1.1, 0.9], [9.0, 9.0, 9.0]
    assert verdict_label(low, high, below=1.5) == "seen"
    assert verdict_label(low, high, below=None, above=1.5) == "opposite"


def test_metrics_are_compared_with_each_other() -> None:
    expected = {
        "measure": "held-out.late", "arm": "one", "below": "one", "other_measure": "held-out.early",
    }  # fmt: skip
    study = small_study(expected=[expected])
    metrics = {
        seed: {"held-out.early": 2.9 + 0.1 * seed, "held-out.late": 1.0} for seed in range(3)
    }
    [verdict] = evaluate(study, {"one": metrics, "other": metrics})
    assert (verdict.label, verdict.effect.mean) == ("seen", pytest.approx(2.0))
    assert str(verdict.expectation) == "held-out.late: one below one in held-out.early"


losses = st.lists(st.floats(0.0, 10.0), min_size=3, max_size=6)


@given(losses, st.data())
def test_swapped_arms_have_the_opposite_label(one: list[float], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.floats(0.0, 10.0), min_size=len(one), max_size=len(one)))
    swapped = {"seen": "opposite", "opposite": "seen"}
    label = verdict_label(one, other)
    assert verdict_label(other, one) == swapped.get(label, label)


def test_claim_is_seen_if_every_part_is() -> None:
    study = small_study(
        expected=[
            {"measure": "held-out.masked_loss", "arm": "one", "below": "other"},
            {"measure": "held-out.masked_loss", "arm": "one", "below": 5.0},
        ]
    )
    results = {
        arm: {seed: {"held-out.masked_loss": loss + seed} for seed in range(3)}
        for arm, loss in (("one", 1.0), ("other", 2.0))
    }
    results["other"][1]["held-out.masked_loss"] += 0.1
    verdicts = evaluate(study, results)
    assert [verdict.label for verdict in verdicts] == ["seen", "seen"]
    assert overall_label(verdicts) == "seen"


def test_first_label_of_the_parts_is_the_label_of_the_claim() -> None:
    def label(*labels: VerdictLabel) -> str:
        [part] = small_study().expected
        effect = Estimate(0.0, 0.0, 0.0, 0.0, 3)
        return overall_label([StudyVerdict(part, effect, Verdict(label)) for label in labels])

    assert label("seen", "no difference") == "no difference"
    assert label("seen", "undecided", "no difference") == "undecided"
    assert label("undecided", "opposite", "seen") == "opposite"
    assert label("opposite", "invalid design") == "invalid design"


@pytest.mark.parametrize(
    ("one", "other", "label"),
    [
        ([0.26, 0.25, 0.255], [0.25, 0.26, 0.25], "invalid design"),
        ([0.99, 1.0, 0.98], [0.99, 0.98, 1.0], "invalid design"),
        ([0.6, 0.5, 0.55], [0.26, 0.25, 0.25], "seen"),
        ([0.6, 0.5, 0.55], [0.5, 0.6, 0.57], "undecided"),
    ],
)
def test_scores_at_chance_or_perfect_cannot_be_compared(
    one: list[float], other: list[float], label: str
) -> None:
    study = small_study(
        bounds={"held-out.accuracy": [0.25, 1.0]},
        expected=[{"measure": "held-out.accuracy", "arm": "one", "above": "other"}],
    )
    results = {
        arm: {seed: {"held-out.accuracy": value} for seed, value in enumerate(values)}
        for arm, values in (("one", one), ("other", other))
    }
    assert evaluate(study, results)[0].label == label


@pytest.mark.parametrize(
    ("measure", "metric"),
    [
        ("held-out", "masked_accuracy"),
        ("minimal-pairs", "agreement"),
        ("continuation", "distance-8"),
        ("continuation-tokens", "copy-longer"),
    ],
)
def test_accuracies_have_bounds_whatever_they_are_called(measure: str, metric: str) -> None:
    study = small_study(measures={"scores": {"kind": measure}}, expected=[])
    assert study.bounds_of(f"scores.{metric}") == (0.0, 1.0)


def test_losses_have_no_bounds() -> None:
    assert small_study().bounds_of("held-out.masked_loss") is None


def test_unknown_metric_raises() -> None:
    study = small_study(
        expected=[{"measure": "held-out.masked_los", "arm": "one", "below": "other"}]
    )
    results = {arm: {0: {"held-out.masked_loss": 1.0}} for arm in ("one", "other")}
    with pytest.raises(UserError, match="did you mean 'held-out"):
        evaluate(study, results)


def test_default_expectation() -> None:
    def expectations(*arms: dict[str, float]) -> list[str]:
        results = {name: {0: metrics} for name, metrics in zip(("one", "other"), arms, strict=True)}
        return [str(expectation) for expectation in default_expectation(results)]

    both = {"held-out.masked_loss": 1.0, "held-out.bits_per_byte": 2.0}
    assert expectations(both, both) == ["held-out.bits_per_byte: one below other"]
    masked = {"held-out.masked_loss": 1.0}
    assert expectations(both, masked) == ["held-out.masked_loss: one below other"]
    assert expectations(both, {"held-out.causal_loss": 1.0}) == []
