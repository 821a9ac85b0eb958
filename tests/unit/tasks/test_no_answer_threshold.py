"""No-answer thresholds: none is better on the examples that it was fitted to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.formats.examples import ExtractiveQuestion
from bertwright.tasks.outputs import SpanOutput
from bertwright.tasks.outputs.no_answer_threshold import (
    NoAnswerScores,
    best_threshold,
    fit_threshold,
)
from toy_recipes import toy

F1S = st.sampled_from([0.0, 0.5, 1.0])
MARGINS = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])


@given(st.lists(st.tuples(MARGINS, F1S, F1S), min_size=1, max_size=12))
def test_best_threshold_is_optimal(examples: list[tuple[float, float, float]]) -> None:
    scores = NoAnswerScores(*np.array(examples).T)
    reached = scores.f1_at(best_threshold(scores)).sum()
    for other in np.arange(-3.25, 4.0, 0.25):
        assert reached >= scores.f1_at(other).sum() - 1e-9


def test_text_without_a_span_is_unanswerable() -> None:
    scores = NoAnswerScores(np.array([np.inf, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    assert 1.0 < best_threshold(scores) < np.inf
    assert scores.f1_at(best_threshold(scores)).all()


def test_reported_f1_is_cross_fitted() -> None:
    # The first half fits 2, the second 1.4, which suits the first as well.
    margins = np.array([1.0, 1.0, 3.0, 1.8])
    scores = NoAnswerScores(margins, np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    fit = fit_threshold(scores)
    assert scores.f1_at(fit.threshold).all()
    assert (fit.f1_before, fit.f1) == (0.5, 0.75)


def test_threshold_that_does_not_generalise_is_not_used() -> None:
    # Every second example needs an answer, the others none.
    margins = np.array([1.0, 2.0, 1.0, 2.0])
    scores = NoAnswerScores(margins, np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    fit = fit_threshold(scores)
    assert fit.threshold == 0.0
    assert fit.f1 == fit.f1_before


def test_span_calibration_sets_the_threshold(wordpiece) -> None:
    output_type = SpanOutput(unanswerable=True)
    questions = [
        *[ExtractiveQuestion("which", "the red bird is old", ("red bird",), (4,))] * 2,
        *[ExtractiveQuestion("which", "the red bird is old")] * 2,
    ]
    decoder = output_type.build_decoder(())
    sequences = decoder.encode(ExampleEncoder.from_recipe(toy("bert"), wordpiece, 32), questions)
    outputs = []
    for row, score in zip(sequences, (6.0, 6.0, 7.0, 7.0), strict=True):
        output = np.full((len(row.positions), 2), -5.0, np.float32)
        output[2, 0], output[3, 1], output[0] = 4.0, 4.0, score
        outputs.append(output)
    calibrated = output_type.calibrate(decoder, sequences, lambda: outputs, questions)
    assert calibrated is not None
    assert calibrated.metrics["f1_before"] == pytest.approx(0.5)
    again = calibrated.output_type.build_decoder(())
    values = [p.value for p in again.decode(sequences, outputs, questions)]
    assert values == ["red bird", "red bird", "", ""]
    configured = SpanOutput(unanswerable=True, threshold=0.0)
    assert configured.calibrate(decoder, sequences, lambda: outputs, questions) is None
    assert calibrated.output_type.uncalibrated() == output_type, "another model fits its own"
    assert configured.uncalibrated() == configured
