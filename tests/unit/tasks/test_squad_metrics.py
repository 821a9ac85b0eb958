"""Exact match and word F1 match the published evaluations on any answers."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from bertwright.tasks.metrics.squad import (
    exact_match,
    normalise_answer,
    word_f1,
    word_f1_with_no_answer,
)
from bertwright.tasks.outputs import SpanOutput

NOISE = st.text(st.sampled_from("aA theTHE,.-'\u2019 b1\u00e9"), max_size=14)
WORDS = st.lists(st.sampled_from(["the", "a", "cat", "Cat,", "dog", "an", "--", "1987"])).map(
    " ".join
)
WORDING = NOISE | WORDS


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The Cat, sat.", "cat sat"),
        ("an  apple\ta day", "apple day"),
        ("A.B.C. the-end", "abc theend"),
        ("\u201cThe\u201d", "\u201c \u201d"),
        ("", ""),
    ],
)
def test_case_articles_punctuation_and_space_do_not_count(text: str, left: str) -> None:
    assert normalise_answer(text) == left


@given(st.lists(st.tuples(st.lists(WORDING, min_size=1, max_size=3), WORDING), min_size=1))
def test_squad_1_metrics_match_torchmetrics(
    cases: list[tuple[list[str], str]],
) -> None:
    valid = [
        (answers, torchmetrics_predictions)
        for answers, torchmetrics_predictions in cases
        if any(normalise_answer(r) for r in answers)
    ]
    if not valid:
        return
    torchmetrics_references = [
        {
            "answers": {"text": [r for r in answers if normalise_answer(r)], "answer_start": [0]},
            "id": str(number),
        }
        for number, (answers, _) in enumerate(valid)
    ]
    torchmetrics_predictions = [
        {"prediction_text": text, "id": str(n)} for n, (_, text) in enumerate(valid)
    ]
    theirs = squad(torchmetrics_predictions, torchmetrics_references)
    references, predictions = [answers for answers, _ in valid], [text for _, text in valid]
    ours = exact_match(references, predictions), word_f1(references, predictions)
    expected = float(theirs["exact_match"]) / 100, float(theirs["f1"]) / 100
    assert ours == pytest.approx(expected, abs=1e-6)


def second_version(references: list[str], prediction: str) -> tuple[float, float]:
    """Exact match and F1 of one question as Rajpurkar et al. (2018) describe them."""

    def words(text: str) -> list[str]:
        kept = "".join(c for c in text.lower() if c not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    scores: list[tuple[float, float]] = []
    for reference in [r for r in references if words(r)] or [""]:
        a, b = words(reference), words(prediction)
        same = sum((Counter(a) & Counter(b)).values())
        exact = float(a == b)
        if not a or not b:
            scores.append((exact, exact))
        elif not same:
            scores.append((exact, 0.0))
        else:
            precision, recall = same / len(b), same / len(a)
            scores.append((exact, 2 * precision * recall / (precision + recall)))
    return max(e for e, _ in scores), max(f for _, f in scores)


@given(st.lists(st.tuples(st.lists(WORDING, max_size=3), WORDING), min_size=1))
def test_squad_2_metrics(
    cases: list[tuple[list[str], str]],
) -> None:
    references, predictions = (
        [answers for answers, _ in cases],
        [prediction for _, prediction in cases],
    )
    expected = [second_version(answers, prediction) for answers, prediction in cases]
    exact, f1 = (sum(of) / len(of) for of in zip(*expected, strict=True))
    assert exact_match(references, predictions) == pytest.approx(exact, abs=1e-9)
    assert word_f1_with_no_answer(references, predictions) == pytest.approx(f1, abs=1e-9)


def test_span_metric_depends_on_the_squad_version() -> None:
    assert SpanOutput().metric("f1") is word_f1
    assert SpanOutput(unanswerable=True).metric("f1") is word_f1_with_no_answer
