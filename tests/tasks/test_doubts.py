"""When "no answer" is said: no threshold is better on the examples by which it was chosen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.answers import SpanAnswer
from bertwright.tasks.doubts import Doubts, best_threshold, settle
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.formats.examples import Question
from recipes_at_toy_size import toy

SHARES = st.sampled_from([0.0, 0.5, 1.0])
LEADS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])


@given(st.lists(st.tuples(LEADS, SHARES, SHARES), min_size=1, max_size=12))
def test_no_other_threshold_makes_more_right(examples: list[tuple[float, float, float]]) -> None:
    doubts = Doubts(*np.array(examples).T)
    reached = doubts.right(best_threshold(doubts)).sum()
    for other in np.arange(-3.25, 4.0, 0.25):
        assert reached >= doubts.right(other).sum() - 1e-9


def test_a_text_without_a_span_stays_unanswered() -> None:
    doubts = Doubts(np.array([np.inf, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    assert 1.0 < best_threshold(doubts) < np.inf
    assert doubts.right(best_threshold(doubts)).all()


def test_what_is_reported_was_judged_by_the_threshold_of_others() -> None:
    # Every second example wants one of 2, the others one of 1.4, which suits the former as well.
    lead = np.array([1.0, 1.0, 3.0, 1.8])
    doubts = Doubts(lead, np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    found = settle(doubts)
    assert doubts.right(found.threshold).all()
    assert (found.f1_before, found.f1) == (0.5, 0.75)


def test_a_threshold_that_helps_no_others_is_not_taken() -> None:
    # Every second example wants an answer, the others none.
    lead = np.array([1.0, 2.0, 1.0, 2.0])
    doubts = Doubts(lead, np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    found = settle(doubts)
    assert found.threshold == 0.0
    assert found.f1 == found.f1_before


def test_an_answer_takes_on_its_threshold(wordpiece) -> None:
    answer = SpanAnswer(unanswerable=True)
    questions = [
        *[Question("which", "the red bird is old", ("red bird",), (4,))] * 2,
        *[Question("which", "the red bird is old")] * 2,
    ]
    answering = answer.build(())
    rows = answering.rows(RowMaker.of(toy("bert"), wordpiece, 32), questions)
    outputs = []
    for row, nothing in zip(rows, (6.0, 6.0, 7.0, 7.0), strict=True):
        own = np.full((len(row.places), 2), -5.0, np.float32)
        own[2, 0], own[3, 1], own[0] = 4.0, 4.0, nothing
        outputs.append(own)
    settled = answer.settled(answering, rows, lambda: outputs, questions)
    assert settled is not None
    assert settled.figures["f1_before"] == pytest.approx(0.5)
    again = settled.answer.build(())
    said = [p.answer for p in again.predictions(rows, outputs, questions)]
    assert said == ["red bird", "red bird", "", ""]
    stated = SpanAnswer(unanswerable=True, threshold=0.0)
    assert stated.settled(answering, rows, lambda: outputs, questions) is None
    assert settled.answer.unsettled() == answer, "another model finds its own"
    assert stated.unsettled() == stated
