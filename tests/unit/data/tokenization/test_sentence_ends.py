"""Sentence boundaries."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.data.tokenization.sentences import sentence_ends


def sentences(text: str) -> list[str]:
    ends = [0, *sentence_ends(text), len(text)]
    return [text[start:end].strip() for start, end in pairwise(ends)]


@pytest.mark.parametrize(
    "expected",
    [
        ["It rained.", "It stopped!", "Did it?", "Yes..."],
        ["Dr. Abel met Mrs. Berg, J. R. Ek and H. G. Wells at 3.14 p.m.", "They left."],
        ["See Fig. 3 and No. 5.", "He said no.", "Then he left."],
        ["The U.S. Army left the U.S.", "The end."],
        ["\u201cStop!\u201d he said.", "\u201cWhy?\u201d", "She ran (fast.)", "[He did not.]"],
        ["Use e.g. This or i.e. That vs. Those.", "It costs 5.", "Version 2.0 is out."],
        ["a b. c d stays whole"],
        ["A heading", "a paragraph", "Mr. Abel"],
    ],
)
def test_english(expected: list[str]) -> None:
    joined = "\n" if expected[0] == "A heading" else " "
    assert sentences(joined.join(expected)) == expected


def test_ideographic_stops_need_no_space() -> None:
    text = "\u6211\u4eec\u5728\u6d77\u8fb9\u3002\u201c\u597d\uff01\u201d\u4ed6\u8bf4\u3002"
    assert sentences(text) == [
        "\u6211\u4eec\u5728\u6d77\u8fb9\u3002",
        "\u201c\u597d\uff01\u201d",
        "\u4ed6\u8bf4\u3002",
    ]


@given(st.text(alphabet=st.sampled_from("aB. \n!?\u3002\u201d'\t3")))
def test_sentence_ends_are_not_in_white_space(text: str) -> None:
    ends = list(sentence_ends(text))
    assert ends == sorted(set(ends))
    assert all(0 < end < len(text) and not text[end - 1].isspace() for end in ends)
