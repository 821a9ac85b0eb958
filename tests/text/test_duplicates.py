"""Documents that were seen before."""

import random

from hypothesis import given
from hypothesis import strategies as st
from small_text import stories

from bertwright.text.documents import ReadCounts
from bertwright.text.duplicates import Seen, dissimilar, unseen


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20).map(lambda low: low << 40)))
def test_seen_is_a_set(fingerprints: list[int]) -> None:
    seen, expected = Seen(), set[int]()
    for fingerprint in fingerprints:
        fingerprint = fingerprint or 1
        assert seen.add(fingerprint) == (fingerprint not in expected)
        expected.add(fingerprint)


def test_seen_grows() -> None:
    seen, draw = Seen(), random.Random(0)
    fingerprints = [draw.getrandbits(64) for _ in range(20_000)]
    assert all(map(seen.add, fingerprints))
    assert not any(map(seen.add, fingerprints))


def test_exact_duplicates_are_dropped_and_counted() -> None:
    counts = ReadCounts()
    assert list(unseen(["a", "b", "a", "a", "c"], counts)) == ["a", "b", "c"]
    assert counts.duplicates == 2


def test_near_duplicates_are_dropped_and_counted() -> None:
    draw = random.Random(0)
    words = " ".join(stories(5)).split()
    first = " ".join(draw.choices(words, k=400))
    near = first.replace(first.split()[200], "altered", 1) + " the end"
    other = " ".join(draw.choices(words, k=400))
    for workers in (1, 2):
        counts = ReadCounts()
        assert list(dissimilar([first, near, other, "", "short"], counts, workers)) == [
            first,
            other,
            "",
            "short",
        ]
        assert counts.near_duplicates == 1
