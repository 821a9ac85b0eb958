"""Ends and beginnings that are asked for are those of texts, not those of rows."""

import numpy as np
import pytest
from hypothesis import given
from numbered_text import CLS, FIRST_PIECE, SEP, all_rows, documents, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import (
    Assembly,
    DocSentences,
    FullSentences,
    HalfReversed,
    Mixture,
    Packed,
)
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, every_step, next_pieces, previous_pieces

LENGTH = 12
FRAMED = [
    Packed(length=LENGTH),
    Packed(length=LENGTH, isolated=False),
    FullSentences(length=LENGTH),
    DocSentences(length=LENGTH),
    DocSentences(length=LENGTH, packing=True),
]
REVERSED = [HalfReversed(length=LENGTH, of=of) for of in FRAMED if of.parted_by is None]
TEXT = [[[1 + (d + s + w) % 3 for w in range(4)] for s in range(d % 7 + 1)] for d in range(20)]


def beside(rows: Rows, question: Question, shift: int, asked: int) -> list[int]:
    """The stream's positions of the pieces from which ``asked`` is asked for, ``shift`` places off;
    what is no text is negative."""
    place = question.where[(question.weight > 0) & (question.target == asked)]
    assert (rows.pieces.ravel()[place + shift] == asked).all()
    return (rows.pieces.ravel()[place] - FIRST_PIECE).tolist()


def ends(rows: Rows) -> list[int]:
    return beside(rows, next_pieces(rows), 1, SEP)


def beginnings(rows: Rows) -> list[int]:
    return beside(rows, previous_pieces(rows), -1, CLS)


@pytest.mark.parametrize("assembly", FRAMED, ids=repr)
@given(text=documents)
def test_an_asked_end_stands_behind_the_last_piece_of_a_document(assembly: Assembly, text) -> None:
    try:
        source, split = planned(assembly, text)
    except UserError:
        return
    first, last = split.document_starts[:-1].tolist(), (split.document_starts[1:] - 1).tolist()
    for epoch in range(3):
        rows = all_rows(source, epoch)
        for found, true in ((ends(rows), last), (beginnings(rows), first)):
            assert set(found) <= set(true)
            assert len(found) == len(set(found))


@pytest.mark.parametrize("assembly", FRAMED, ids=repr)
def test_nearly_every_document_has_an_end_and_a_beginning(assembly: Assembly) -> None:
    source, split = planned(assembly, TEXT)
    rows = all_rows(source)
    assert len(ends(rows)) >= split.num_documents - 2 * (assembly.kind == "packed")
    if assembly.parted_by or assembly.kind == "doc-sentences":
        assert len(beginnings(rows)) >= split.num_documents - 2 * (assembly.kind == "packed")
    else:
        assert beginnings(rows)


@pytest.mark.parametrize("assembly", REVERSED, ids=lambda of: of.of.kind)
@given(text=documents)
def test_a_reversed_text_ends_where_the_text_begins(assembly: Assembly, text) -> None:
    try:
        source, split = planned(assembly, text)
    except UserError:
        return
    first, last = split.document_starts[:-1].tolist(), (split.document_starts[1:] - 1).tolist()
    half = np.arange(source.num_rows // 2)
    forward, backward = source.rows(half, 0), source.rows(half + len(half), 0)
    for rows, true, other in ((forward, last, first), (backward, first, last)):
        for found, here in ((ends(rows), true), (beginnings(rows), other)):
            assert set(found) <= set(here)
            assert len(found) == len(set(found))


@pytest.mark.parametrize("assembly", REVERSED, ids=lambda of: of.of.kind)
def test_some_reversed_texts_end(assembly: Assembly) -> None:
    source, _ = planned(assembly, TEXT)
    backward = source.rows(np.arange(source.num_rows // 2, source.num_rows), 0)
    assert ends(backward)
    assert beginnings(backward)


def test_rows_of_a_mixture_are_cut_as_they_are_alone() -> None:
    parts: dict[str, Assembly] = {of.kind: of for of in (Packed(), DocSentences())}
    source, _ = planned(Mixture(length=LENGTH, parts=parts), TEXT)
    together = all_rows(source)
    alone = [
        all_rows(planned(Mixture(length=LENGTH, parts={n: p}), TEXT)[0]) for n, p in parts.items()
    ]
    assert sorted(ends(together)) == sorted(end for rows in alone for end in ends(rows))


def test_a_step_to_the_edge_of_a_row_is_a_step() -> None:
    rows = all_rows(planned(Packed(length=LENGTH), [[[1] * 90]])[0])
    assert every_step(rows).weight.all()
    assert next_pieces(rows).weight.mean() < 1
