"""How stretches of the stream lie in rows, by hand."""

import numpy as np
from numbered_text import CLS, PAD, SEP, SPECIALS, NumberedSplit

from bertwright.examples.assembly.layout import Layout, read

# Two sentences of one document (pieces 100 to 104), then a document of three pieces (105 to 107).
SPLIT = NumberedSplit.of([[[1, 2], [1, 1]], [[3]]])


def lay_out(starts, counts, isolated, length=10, lead=0):
    layout = Layout(SPLIT, SPECIALS, length, isolated)
    return layout.rows(np.array(starts), np.array(counts), lead)


def test_isolated_documents_have_an_end_and_a_start_between_them():
    rows = lay_out([2, 5], [5, 3], isolated=True)
    assert rows.pieces.tolist() == [
        [CLS, 102, 103, 104, SEP, CLS, 105, 106, SEP, PAD],
        [CLS, 105, 106, 107, SEP, PAD, PAD, PAD, PAD, PAD],
    ]
    assert rows.coordinates.document.tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 1, -1],
        [0, 0, 0, 0, 0, -1, -1, -1, -1, -1],
    ]
    assert rows.coordinates.position.tolist() == [
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 0],
        [0, 1, 2, 3, 4, 0, 0, 0, 0, 0],
    ]
    assert rows.coordinates.word.tolist() == [
        [-1, 0, 1, 2, -1, -1, 3, 3, -1, -1],
        [-1, 0, 0, 0, -1, -1, -1, -1, -1, -1],
    ]
    assert rows.coordinates.sentence.tolist() == [
        [-1, 0, 1, 1, -1, -1, 2, 2, -1, -1],
        [-1, 0, 0, 0, -1, -1, -1, -1, -1, -1],
    ]
    assert rows.special.tolist() == (rows.coordinates.word < 0).tolist()


def test_documents_that_see_each_other_have_an_extra_separator_between_them():
    rows = lay_out([0], [8], isolated=False, length=12)
    assert rows.pieces.tolist() == [[CLS, 100, 101, 102, 103, 104, SEP, 105, 106, 107, SEP, PAD]]
    assert rows.coordinates.document.tolist() == [[0] * 11 + [-1]]
    assert rows.coordinates.position is None


def test_a_full_row_is_cut_and_ends_in_an_end():
    rows = lay_out([3, 2, 1, 0], [8, 8, 8, 8], isolated=True, length=7)
    assert rows.pieces.tolist() == [
        [CLS, 103, 104, SEP, CLS, 105, SEP],
        [CLS, 102, 103, 104, SEP, CLS, SEP],
        [CLS, 101, 102, 103, 104, SEP, SEP],
        [CLS, 100, 101, 102, 103, 104, SEP],
    ]
    assert rows.real.all()


def test_a_row_may_begin_within_a_joint():
    rows = lay_out([5, 5, 5], [3, 3, 3], isolated=True, length=7, lead=np.array([0, 1, 2]))
    assert rows.pieces.tolist() == [
        [CLS, 105, 106, 107, SEP, PAD, PAD],
        [CLS, CLS, 105, 106, 107, SEP, PAD],
        [CLS, SEP, CLS, 105, 106, 107, SEP],
    ]
    assert rows.coordinates.document.tolist() == [
        [0, 0, 0, 0, 0, -1, -1],
        [0, 1, 1, 1, 1, 1, -1],
        [0, 0, 1, 1, 1, 1, 1],
    ]


def test_reading_past_the_end_of_a_split_is_harmless():
    pieces, _ = read(SPLIT, np.array([0, 6]), 4)
    assert pieces[0].tolist() == [100, 101, 102, 103]
    assert pieces[1, :2].tolist() == [106, 107]
    assert read(SPLIT, np.array([0]), 20)[0].shape == (1, 20)
