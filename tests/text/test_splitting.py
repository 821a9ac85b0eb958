"""Which documents are held out."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_text import stories

from bertwright.errors import UserError
from bertwright.text.documents import Document, fingerprint
from bertwright.text.splitting import FACTOR, HELDOUT, TRAIN, assign_splits, heldout_warning


def split(documents: list[str], share: float) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {TRAIN: set(), HELDOUT: set()}
    for name, document in assign_splits(map(Document, documents), share):
        found[name].add(document.text)
    return found


@given(documents=st.sets(st.text(min_size=1), min_size=2), share=st.floats(0.001, 0.999))
def test_both_splits_get_a_document_and_none_is_lost(documents: set[str], share: float) -> None:
    found = split(sorted(documents), share)
    assert found[TRAIN]
    assert found[HELDOUT]
    parts = found[TRAIN] | found[HELDOUT]
    whole = parts & documents
    for document in documents - whole:  # cut in two
        train, heldout = sorted(parts - whole, key=lambda part: not document.startswith(part))
        assert document.startswith(train)
        assert document.strip().endswith(heldout)
    assert len(parts) <= len(documents) + 1


@given(st.permutations(stories(12)))
def test_the_order_does_not_matter(documents: list[str]) -> None:
    assert split(documents, 0.2) == split(stories(12), 0.2)


def test_about_the_share_is_held_out() -> None:
    found = split([f"document {i}" for i in range(5000)], 0.1)
    assert 400 < len(found[HELDOUT]) < 600


def test_a_larger_share_holds_out_more_of_the_same() -> None:
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


def documents_of(sizes: list[int]) -> list[Document]:
    """Documents of about so many characters, each another."""
    return [
        Document(f"Number {n}. " + SENTENCE * (size // len(SENTENCE)))
        for n, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
def test_the_share_is_that_which_was_asked(sizes: list[int], share: float) -> None:
    """Within a factor of 1.5, whatever the documents; none is lost."""
    documents = documents_of(sizes)
    found: dict[str, list[str]] = {TRAIN: [], HELDOUT: []}
    for name, document in assign_splits(documents, share):
        found[name].append(document.text)
    heldout, train = (sum(map(len, found[name])) for name in (HELDOUT, TRAIN))
    assert share / FACTOR <= heldout / (heldout + train) <= share * FACTOR
    assert not heldout_warning(share, heldout / (heldout + train))
    assert heldout + train == pytest.approx(sum(map(len, documents)), rel=1e-3)
    assert found[TRAIN]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_few_documents_does_not_matter(seed: int) -> None:
    documents = documents_of(SHAPES["very unlike"])
    mixed = random.Random(seed).sample(documents, len(documents))
    assert set(assign_splits(mixed, 0.05)) == set(assign_splits(documents, 0.05))


def test_documents_that_cannot_be_cut_are_chosen_by_their_size() -> None:
    """Dialogues and translations stay whole; where none fits, a warning says what to do."""
    plain = documents_of([100_000, *[1_000 * n for n in range(1, 20)]])
    for kept in (
        [replace(d, speakers=(0, 1)) for d in plain],
        [replace(d, language="en", translation=Document("Text.", "de")) for d in plain],
    ):
        found = list(assign_splits(kept, 0.05))
        assert {document for _, document in found} == set(kept)
        heldout = sum(len(document) for name, document in found if name == HELDOUT)
        assert not heldout_warning(0.05, heldout / sum(map(len, kept)))
    two = [replace(d, speakers=(0, 1)) for d in documents_of([5_000, 6_000])]
    [heldout] = [len(d) for name, d in assign_splits(two, 0.05) if name == HELDOUT]
    assert heldout == len(two[0])
    assert "blank lines" in heldout_warning(0.05, heldout / sum(map(len, two)))


def test_what_is_close_is_left_to_the_fingerprints() -> None:
    """As in every text of many documents."""
    documents = [f"document {i}" for i in range(500)]
    fingerprints = {d: fingerprint(Document(d)) / 2.0**64 for d in documents}
    expected = {d for d in documents if fingerprints[d] < 0.1}
    assert split(documents, 0.1)[HELDOUT] == expected


def test_a_single_document_is_cut_at_a_sentence() -> None:
    document = "One sentence here. Another sentence there.\nA third. And a fourth one at last."
    assert list(assign_splits([Document(document, "en")], 0.3)) == [
        (TRAIN, Document("One sentence here. Another sentence there.\nA third.", "en")),
        (HELDOUT, Document("And a fourth one at last.", "en")),
    ]
    with pytest.raises(UserError, match="--heldout 0"):
        list(assign_splits([Document("Only one sentence.")], 0.3))


def test_nothing_need_be_held_out() -> None:
    assert split(["Only one sentence."], 0.0) == {TRAIN: {"Only one sentence."}, HELDOUT: set()}


def test_no_documents_are_no_documents() -> None:
    assert list(assign_splits([], 0.1)) == []
