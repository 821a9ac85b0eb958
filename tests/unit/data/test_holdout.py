"""Assignment of documents to training and held-out splits."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.data.document import Document, document_fingerprint
from bertwright.data.holdout import (
    HELDOUT,
    HELDOUT_TOLERANCE,
    TRAIN,
    assign_splits,
    heldout_warning,
)
from small_text import stories


def split(documents: list[str], fraction: float) -> dict[str, set[str]]:
    splits: dict[str, set[str]] = {TRAIN: set(), HELDOUT: set()}
    for name, document in assign_splits(map(Document, documents), fraction):
        splits[name].add(document.text)
    return splits


@given(documents=st.sets(st.text(min_size=1), min_size=2), fraction=st.floats(0.001, 0.999))
def test_both_splits_get_a_document(documents: set[str], fraction: float) -> None:
    splits = split(sorted(documents), fraction)
    assert splits[TRAIN]
    assert splits[HELDOUT]
    parts = splits[TRAIN] | splits[HELDOUT]
    whole = parts & documents
    for document in documents - whole:  # split in two
        train, heldout = sorted(parts - whole, key=lambda part: not document.startswith(part))
        assert document.startswith(train)
        assert document.strip().endswith(heldout)
    assert len(parts) <= len(documents) + 1


@given(st.permutations(stories(12)))
def test_split_does_not_depend_on_the_order(documents: list[str]) -> None:
    assert split(documents, 0.2) == split(stories(12), 0.2)


def test_about_the_fraction_is_held_out() -> None:
    splits = split([f"document {i}" for i in range(5000)], 0.1)
    assert 400 < len(splits[HELDOUT]) < 600


def test_larger_fraction_is_a_superset() -> None:
    documents = [f"document {i}" for i in range(500)]
    assert split(documents, 0.1)[HELDOUT] < split(documents, 0.3)[HELDOUT]


SENTENCE = "The ship sails to the sea. "
SHAPES = {
    "two": [700_000, 50_000],
    "three": [30_000] * 3,
    "one long and many short": [400_000, *[200] * 100],
    "ten": [9_000 + 500 * n for n in range(10)],
    "very unlike": [2**n * 100 for n in range(12)],
    "many": [1_000] * 3000,
    "a large file without blank lines": [1_000_000] * 14,
    "large and small": [*[2_000_000] * 4, *[1_000] * 2000, *[1_500_000] * 3],
}


def make_documents(sizes: list[int]) -> list[Document]:
    """Return distinct documents of about these sizes in characters."""
    return [
        Document(f"Number {n}. " + SENTENCE * (size // len(SENTENCE)))
        for n, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("fraction", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
def test_fraction_is_close_to_the_requested_one(sizes: list[int], fraction: float) -> None:
    """The tolerance is a factor of 1.5, and no text is lost."""
    documents = make_documents(sizes)
    splits: dict[str, list[str]] = {TRAIN: [], HELDOUT: []}
    for name, document in assign_splits(documents, fraction):
        splits[name].append(document.text)
    heldout, train = (sum(map(len, splits[name])) for name in (HELDOUT, TRAIN))
    assert (
        fraction / HELDOUT_TOLERANCE <= heldout / (heldout + train) <= fraction * HELDOUT_TOLERANCE
    )
    assert not heldout_warning(fraction, heldout / (heldout + train))
    assert heldout + train == pytest.approx(sum(map(len, documents)), rel=1e-3)
    assert splits[TRAIN]


@pytest.mark.parametrize("seed", range(5))
def test_split_of_few_documents_does_not_depend_on_the_order(seed: int) -> None:
    documents = make_documents(SHAPES["very unlike"])
    mixed = random.Random(seed).sample(documents, len(documents))
    assert set(assign_splits(mixed, 0.05)) == set(assign_splits(documents, 0.05))


def test_unsplittable_documents_are_held_out_by_size() -> None:
    """Dialogues and translations are not split; a warning appears if none fits."""
    plain = make_documents([100_000, *[1_000 * n for n in range(1, 20)]])
    for kept in (
        [replace(d, speakers=(0, 1)) for d in plain],
        [replace(d, language="en", translation=Document("Text.", "de")) for d in plain],
    ):
        splits = list(assign_splits(kept, 0.05))
        assert {document for _, document in splits} == set(kept)
        heldout = sum(len(document) for name, document in splits if name == HELDOUT)
        assert not heldout_warning(0.05, heldout / sum(map(len, kept)))
    two = [replace(d, speakers=(0, 1)) for d in make_documents([5_000, 6_000])]
    [heldout] = [len(d) for name, d in assign_splits(two, 0.05) if name == HELDOUT]
    assert heldout == len(two[0])
    assert "blank lines" in heldout_warning(0.05, heldout / sum(map(len, two)))


def test_fingerprints_decide_if_the_fraction_is_close() -> None:
    """This is the case for many documents."""
    documents = [f"document {i}" for i in range(500)]
    fingerprints = {d: document_fingerprint(Document(d)) / 2.0**64 for d in documents}
    expected = {d for d in documents if fingerprints[d] < 0.1}
    assert split(documents, 0.1)[HELDOUT] == expected


def test_single_document_is_split_at_a_sentence() -> None:
    document = "One sentence here. Another sentence there.\nA third. And a fourth one at last."
    assert list(assign_splits([Document(document, "en")], 0.3)) == [
        (TRAIN, Document("One sentence here. Another sentence there.\nA third.", "en")),
        (HELDOUT, Document("And a fourth one at last.", "en")),
    ]
    with pytest.raises(UserError, match="--heldout 0"):
        list(assign_splits([Document("Only one sentence.")], 0.3))


def test_zero_fraction() -> None:
    assert split(["Only one sentence."], 0.0) == {TRAIN: {"Only one sentence."}, HELDOUT: set()}


def test_no_documents() -> None:
    assert list(assign_splits([], 0.1)) == []
