"""Documents that were seen before."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_text import stories

from bertwright.text.documents import Document, ReadCounts
from bertwright.text.duplicates import FirstHolders, unseen
from bertwright.text.near_duplicates import Sketcher, dissimilar


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20).map(lambda low: low << 40)))
def test_the_first_holder_stays(fingerprints: list[int]) -> None:
    holders, expected = FirstHolders(), dict[int, int]()
    for holder, fingerprint in enumerate(fingerprints):
        first = expected.setdefault(fingerprint or 1, holder)
        assert holders.first(fingerprint, holder) == first


def test_many_holders() -> None:
    holders, draw = FirstHolders(), random.Random(0)
    fingerprints = [draw.getrandbits(64) for _ in range(20_000)]
    for _ in range(2):
        assert [holders.first(f, i) for i, f in enumerate(fingerprints)] == list(range(20_000))


def test_sketches_estimate_the_share_of_common_runs() -> None:
    draw = random.Random(0)
    words = [str(draw.getrandbits(40)) for _ in range(3000)]
    for common in (0.0, 0.3, 0.6, 0.9, 1.0):
        half = int(1500 * (1 + common))  # of all runs
        first, second = " ".join(words[:half]), " ".join(words[3000 - half :])
        (_, one), (_, other) = Sketcher()([Document(first), Document(second)])
        expected = max(0, 2 * half - 3000) / 3000
        assert abs((one == other).mean() - expected) < 0.15


def test_exact_duplicates_are_dropped_and_counted() -> None:
    counts = ReadCounts()
    assert [d.text for d in unseen(map(Document, "abaac"), counts)] == ["a", "b", "c"]
    assert counts.duplicates == 2


def test_near_duplicates_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.text.processes.CHUNK_CHARACTERS", 500)
    draw = random.Random(0)
    words = " ".join(stories(5)).split()
    first = " ".join(draw.choices(words, k=400))
    near = first.replace(first.split()[200], "altered", 1) + " the end"
    other = " ".join(draw.choices(words, k=400))
    for workers in (1, 2):
        counts = ReadCounts()
        documents = map(Document, [first, near, other, "", "short"])
        kept = [document.text for document in dissimilar(documents, counts, workers)]
        assert kept == [first, other, "", "short"]
        assert counts.near_duplicates == 1
