"""What the arms of a study change about published systems."""

from bertwright.studies.body import body_lines, body_report
from small_study import small_study


def test_scale_and_training_are_not_the_body() -> None:
    report = body_report(small_study())
    assert report["exchanged"] == []
    assert "encoder.width 32" in report["scale"]
    assert report["arms"]["one"] == {"system": "bert", "changes": []}
    assert "- other: roberta, as published" in body_lines(report)


def test_changes_of_all_arms_are_exchanged_and_those_of_an_arm_are_kept() -> None:
    study = small_study(
        changes={"encoder": {"positions": {"kind": "rotary"}}},
        arms={"other": {"changes": {"encoder": {"norm": {"placement": "pre"}}}}},
    )
    report = body_report(study)
    change = "encoder.positions: learned (size 512, offset 0) → rotary (base 10000)"
    assert report["exchanged"][0] == change
    assert report["arms"]["other"]["changes"] == ["encoder.norm.placement: post → pre"]
    assert report["arms"]["one"]["changes"] == []
    assert body_lines(report)[1].startswith("Body: all arms exchange encoder.positions: learned")
