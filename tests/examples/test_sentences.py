"""Rows of whole sentences."""

import numpy as np
from hypothesis import given
from numbered_text import CLS, FIRST_PIECE, PAD, SEP, all_rows, documents, planned, text_of

from bertwright.examples.assembly import DocSentences, FullSentences

LENGTH = 10
# Documents of sentences: 3 + 4 pieces; 2; 3.
TEXT = [[[3], [4]], [[2]], [[1, 2]]]


def test_full_sentences_cross_documents():
    source, _ = planned(FullSentences(length=LENGTH), TEXT)
    assert all_rows(source).pieces.tolist() == [
        [CLS, 100, 101, 102, 103, 104, 105, 106, SEP, PAD],
        [CLS, 107, 108, SEP, 109, 110, 111, SEP, PAD, PAD],
    ]


def test_doc_sentences_end_with_their_document():
    source, _ = planned(DocSentences(length=LENGTH), TEXT)
    assert all_rows(source).pieces.tolist() == [
        [CLS, 100, 101, 102, 103, 104, 105, 106, SEP, PAD],
        [CLS, 107, 108, SEP, PAD, PAD, PAD, PAD, PAD, PAD],
        [CLS, 109, 110, 111, SEP, PAD, PAD, PAD, PAD, PAD],
    ]


def test_packing_puts_short_sequences_together():
    source, _ = planned(DocSentences(length=LENGTH, packing=True), TEXT)
    assert all_rows(source).pieces.tolist() == [
        [CLS, 100, 101, 102, 103, 104, 105, 106, SEP, PAD],
        [CLS, 107, 108, SEP, CLS, 109, 110, 111, SEP, PAD],
    ]


@given(text=documents)
def test_each_piece_is_used_once(text):
    for assembly in (
        FullSentences(length=LENGTH),
        DocSentences(length=LENGTH),
        DocSentences(length=LENGTH, packing=True),
    ):
        source, split = planned(assembly, text)
        used = np.concatenate(text_of(all_rows(source))) - FIRST_PIECE
        np.testing.assert_array_equal(used, np.arange(split.num_pieces))


@given(text=documents)
def test_sentences_are_cut_only_where_they_are_longer_than_a_row(text):
    source, split = planned(FullSentences(length=LENGTH), text)
    for pieces in text_of(all_rows(source))[1:]:
        start = pieces[0] - FIRST_PIECE
        sentence = split.sentence_starts[split.sentence_starts <= start][-1]
        assert (start - sentence) % (LENGTH - 2) == 0


@given(text=documents)
def test_rows_are_filled_greedily(text):
    source, split = planned(FullSentences(length=LENGTH), text)
    rows = all_rows(source)
    for i, following in enumerate(text_of(rows)[1:]):
        start = following[0] - FIRST_PIECE
        later = split.sentence_starts[split.sentence_starts > start]
        sentence = min(LENGTH - 2, later[0] - start)
        joint = int(start in split.document_starts)
        assert rows.real[i].sum() + joint + sentence > LENGTH
