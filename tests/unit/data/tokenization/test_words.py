"""Words of a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.data.tokenization.words import word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It didn't rain.", ["It", "didn", "'", "t", "rain", "."]),
        ("snake_case 3.14 x2", ["snake", "_", "case", "3", ".", "14", "x2"]),
        ("na\u00efve \u6211\u4eec ok", ["na\u00efve", "\u6211", "\u4eec", "ok"]),
        (
            "\u0939\u093f\u0928\u094d\u0926\u0940 e\u0301te",
            ["\u0939\u093f\u0928\u094d\u0926\u0940", "e\u0301te"],
        ),
        ("\u6211\u0301 \u20ac5", ["\u6211", "\u0301", "\u20ac", "5"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == words


@given(st.text())
def test_words_cover_all_visible_characters_once(text: str) -> None:
    covered = [index for start, end in word_spans(text) for index in range(start, end)]
    assert covered == [index for index, character in enumerate(text) if not character.isspace()]
