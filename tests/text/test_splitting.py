"""Which documents are held out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_text import stories

from bertwright.errors import UserError
from bertwright.text.documents import Document
from bertwright.text.splitting import HELDOUT, TRAIN, assign_splits


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
    assert found[TRAIN] | found[HELDOUT] == documents


@given(st.permutations(stories(12)))
def test_the_order_does_not_matter(documents: list[str]) -> None:
    assert split(documents, 0.2) == split(stories(12), 0.2)


def test_about_the_share_is_held_out() -> None:
    found = split([f"document {i}" for i in range(5000)], 0.1)
    assert 400 < len(found[HELDOUT]) < 600


def test_a_larger_share_holds_out_more_of_the_same() -> None:
    documents = [f"document {i}" for i in range(500)]
    assert split(documents, 0.1)[HELDOUT] < split(documents, 0.3)[HELDOUT]


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
