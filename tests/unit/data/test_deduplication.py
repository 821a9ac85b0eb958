"""Removal of duplicate documents."""

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.parallel import map_in_order
from bertwright.data.deduplication import (
    FingerprintTable,
    MinHasher,
    drop_duplicates,
    drop_near_duplicates,
)
from bertwright.data.document import Document, ReadCounts
from small_text import stories


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20).map(lambda low: low << 40)))
def test_first_index_is_kept(fingerprints: list[int]) -> None:
    table, expected = FingerprintTable(), dict[int, int]()
    for index, fingerprint in enumerate(fingerprints):
        first = expected.setdefault(fingerprint or 1, index)
        assert table.first_index(fingerprint, index) == first


def test_many_fingerprints() -> None:
    table, rng = FingerprintTable(), random.Random(0)
    fingerprints = [rng.getrandbits(64) for _ in range(20_000)]
    for _ in range(2):
        assert [table.first_index(f, i) for i, f in enumerate(fingerprints)] == list(range(20_000))


def test_sketches_estimate_the_jaccard_similarity() -> None:
    rng = random.Random(0)
    words = [str(rng.getrandbits(40)) for _ in range(3000)]
    for common in (0.0, 0.3, 0.6, 0.9, 1.0):
        half = int(1500 * (1 + common))  # of all runs
        first, second = " ".join(words[:half]), " ".join(words[3000 - half :])
        (_, one), (_, other) = MinHasher()([Document(first), Document(second)])
        expected = max(0, 2 * half - 3000) / 3000
        assert abs((one == other).mean() - expected) < 0.15


def test_exact_duplicates_are_dropped_and_counted() -> None:
    counts = ReadCounts()
    assert [d.text for d in drop_duplicates(map(Document, "abaac"), counts)] == ["a", "b", "c"]
    assert counts.duplicates == 2


def test_near_duplicates_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.core.parallel.CHUNK_CHARACTERS", 500)
    rng = random.Random(0)
    words = " ".join(stories(5)).split()
    first = " ".join(rng.choices(words, k=400))
    near = first.replace(first.split()[200], "altered", 1) + " the end"
    other = " ".join(rng.choices(words, k=400))
    for workers in (1, 2):
        counts = ReadCounts()
        documents = map(Document, [first, near, other, "", "short"])
        kept = [
            document.text
            for document in drop_near_duplicates(
                documents, counts, partial(map_in_order, num_workers=workers)
            )
        ]
        assert kept == [first, other, "", "short"]
        assert counts.near_duplicates == 1
