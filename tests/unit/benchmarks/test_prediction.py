"""Prediction speed: reproducible short texts, and figures of both sides."""

import pytest

from benchmarks.prediction import WORDS_PER_TEXT, compare, sample_short_texts

LINES = [" ".join(f"word{n * 7 + m}" for m in range(30)) for n in range(20)]


def test_sampled_texts_are_short_and_reproducible() -> None:
    texts = sample_short_texts(LINES, 500)
    assert texts == sample_short_texts(LINES, 500)
    shortest, longest = WORDS_PER_TEXT
    assert {len(text.split()) for text in texts} == set(range(shortest, longest + 1))


@pytest.mark.full
def test_both_sides_are_measured() -> None:
    result = compare(LINES, 100, 1, lambda line: None)
    assert result["texts"] == 100
    assert result["relative_speed"] > 0
