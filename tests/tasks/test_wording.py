"""Exact match and F1 over words: those of the published evaluations, on whatever is said."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from bertwright.tasks.answers import SpanAnswer
from bertwright.tasks.wording import bare, exact_match, word_f1, word_f1_or_none

SAID = st.text(st.sampled_from("aA theTHE,.-'\u2019 b1\u00e9"), max_size=14)
WORDS = st.lists(st.sampled_from(["the", "a", "cat", "Cat,", "dog", "an", "--", "1987"])).map(
    " ".join
)
WORDING = SAID | WORDS


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
    assert bare(text) == left


@given(st.lists(st.tuples(st.lists(WORDING, min_size=1, max_size=3), WORDING), min_size=1))
def test_the_first_version_is_scored_as_torchmetrics_does(
    cases: list[tuple[list[str], str]],
) -> None:
    kept = [(right, said) for right, said in cases if any(bare(r) for r in right)]
    if not kept:
        return
    asked = [
        {
            "answers": {"text": [r for r in right if bare(r)], "answer_start": [0]},
            "id": str(number),
        }
        for number, (right, _) in enumerate(kept)
    ]
    said = [{"prediction_text": text, "id": str(n)} for n, (_, text) in enumerate(kept)]
    theirs = squad(said, asked)
    references, predictions = [right for right, _ in kept], [text for _, text in kept]
    found = exact_match(references, predictions), word_f1(references, predictions)
    expected = float(theirs["exact_match"]) / 100, float(theirs["f1"]) / 100
    assert found == pytest.approx(expected, abs=1e-6)


def second_version(right: list[str], said: str) -> tuple[float, float]:
    """Exact match and F1 of one question as Rajpurkar et al. (2018) describe them."""

    def words(text: str) -> list[str]:
        kept = "".join(c for c in text.lower() if c not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    scores: list[tuple[float, float]] = []
    for reference in [r for r in right if words(r)] or [""]:
        a, b = words(reference), words(said)
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
def test_the_second_version_knows_questions_without_an_answer(
    cases: list[tuple[list[str], str]],
) -> None:
    references, predictions = [right for right, _ in cases], [said for _, said in cases]
    expected = [second_version(right, said) for right, said in cases]
    exact, f1 = (sum(of) / len(of) for of in zip(*expected, strict=True))
    assert exact_match(references, predictions) == pytest.approx(exact, abs=1e-9)
    assert word_f1_or_none(references, predictions) == pytest.approx(f1, abs=1e-9)


def test_a_task_scores_as_its_version_does() -> None:
    assert SpanAnswer().metric("f1") is word_f1
    assert SpanAnswer(unanswerable=True).metric("f1") is word_f1_or_none
