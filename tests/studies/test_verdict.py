"""When a claim counts as seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_study import small_study

from bertwright.errors import UserError
from bertwright.studies.verdict import overall, verdicts, which_is_better


def judge(one: list[float], other: list[float], **expected: object) -> str:
    """The word for losses of two arms of which the first is said to be lower."""
    study = small_study(
        expected=[{"measure": "held-out.masked_loss", "arm": "one", "below": "other", **expected}]
    )
    found = {
        name: {seed: {"held-out.masked_loss": value} for seed, value in enumerate(values)}
        for name, values in (("one", one), ("other", other))
    }
    return verdicts(study.expected, found)[0].word


def test_the_rule() -> None:
    assert judge([1.0, 1.1, 0.9], [2.0, 2.2, 1.9]) == "seen"
    assert judge([2.0, 2.2, 1.9], [1.0, 1.1, 0.9]) == "opposite"
    assert judge([1.0, 1.1], [2.0, 2.2]) == "not seen", "two seeds are too few"
    assert judge([1.0, 1.1, 2.5], [2.0, 2.2, 1.9]) == "not seen", "one seed disagrees"
    assert judge([1.0, 1.9, 1.99], [2.0, 2.0, 2.0]) == "not seen", "within two standard errors"
    assert judge([1.0, 1.1, 0.9], [2.0, 2.2, 1.9], by=2.0) == "not seen", "less than the distance"
    assert judge([2.0, 2.2, 1.9], [1.0, 1.1, 0.9], by=0.5) == "opposite"


def test_a_number_takes_the_place_of_an_arm() -> None:
    assert judge([1.0, 1.1, 0.9], [9.0, 9.0, 9.0], below=1.5) == "seen"
    missed = judge([1.0, 1.1, 0.9], [9.0, 9.0, 9.0], below=None, above=1.5)
    assert missed == "not seen", "a number that is not reached at this scale"


def test_a_figure_is_held_against_another_one_of_the_other_arm() -> None:
    expected = {"measure": "held-out.late", "arm": "one", "below": "one", "its": "held-out.early"}
    study = small_study(expected=[expected])
    figures = {
        seed: {"held-out.early": 2.9 + 0.1 * seed, "held-out.late": 1.0} for seed in range(3)
    }
    [verdict] = verdicts(study.expected, {"one": figures, "other": figures})
    assert (verdict.word, verdict.lead.mean) == ("seen", pytest.approx(2.0))
    assert str(verdict.expectation) == "held-out.late: one below one in held-out.early"


losses = st.lists(st.floats(0.0, 10.0), min_size=3, max_size=6)


@given(losses, st.data())
def test_what_is_opposite_of_a_claim_is_seen_of_its_reverse(
    one: list[float], data: st.DataObject
) -> None:
    other = data.draw(st.lists(st.floats(0.0, 10.0), min_size=len(one), max_size=len(one)))
    reverse = {"seen": "opposite", "opposite": "seen", "not seen": "not seen"}
    assert judge(other, one) == reverse[judge(one, other)]


def test_a_claim_is_seen_where_every_part_is() -> None:
    study = small_study(
        expected=[
            {"measure": "held-out.masked_loss", "arm": "one", "below": "other"},
            {"measure": "held-out.masked_loss", "arm": "one", "below": 5.0},
        ]
    )
    found = {
        name: {seed: {"held-out.masked_loss": value + seed} for seed in range(3)}
        for name, value in (("one", 1.0), ("other", 2.0))
    }
    found["other"][1]["held-out.masked_loss"] += 0.1
    judged = verdicts(study.expected, found)
    assert [verdict.word for verdict in judged] == ["seen", "seen"]
    assert overall(judged) == "seen"


def test_a_figure_that_there_is_not() -> None:
    study = small_study(
        expected=[{"measure": "held-out.masked_los", "arm": "one", "below": "other"}]
    )
    found = {name: {0: {"held-out.masked_loss": 1.0}} for name in ("one", "other")}
    with pytest.raises(UserError, match="did you mean 'held-out"):
        verdicts(study.expected, found)


def test_of_two_arms_that_is_better_which_names_text_better() -> None:
    figures = {"held-out.masked_loss": 1.0, "held-out.bits_per_byte": 2.0}
    [expected] = which_is_better({"one": {0: figures}, "other": {0: figures}})
    assert str(expected) == "held-out.bits_per_byte: one below other"
    [expected] = which_is_better({"one": {0: figures}, "other": {0: {"held-out.masked_loss": 1.0}}})
    assert str(expected) == "held-out.masked_loss: one below other"
    assert which_is_better({"one": {0: figures}, "other": {0: {"held-out.causal_loss": 1.0}}}) == ()
