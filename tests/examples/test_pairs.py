"""Pairs of texts: what is true of every row, and how often B is random."""

import numpy as np
import pytest
from hypothesis import given, strategies
from numbered_text import CLS, FIRST_PIECE, PAD, SEP, all_rows, documents, planned

from bertwright.examples.assembly import SegmentPair, SentencePair
from bertwright.examples.assembly.pair_layout import longest_first

LENGTH = 16
MANY = [[[2, 1, 1], [3], [1, 1], [2, 2]] * 5] * 20


def parted(rows, row, separators=1):
    """A and B of one row."""
    places = np.flatnonzero(~rows.special[row])
    gap = np.flatnonzero(np.diff(places) > 1)
    assert len(gap) == 1
    a, b = np.split(rows.pieces[row, places], gap + 1)
    ends = [SEP] * separators
    assert rows.pieces[row][rows.real[row]].tolist() == [CLS, *a, *ends, *b, SEP]
    return a, b


@given(text=documents, separators=strategies.sampled_from([1, 2]))
def test_pairs_are_two_stretches_of_text(text, separators):
    for kind in (SegmentPair, SentencePair):
        source, split = planned(kind(length=LENGTH, separators=separators), text)
        for epoch in range(3):
            rows = all_rows(source, epoch)
            for row in range(source.num_rows):
                a, b = parted(rows, row, separators)
                for stretch in (a, b):
                    np.testing.assert_array_equal(stretch, stretch[0] + np.arange(len(stretch)))
                    assert len(set(split.document_of(stretch))) == 1
                same = split.document_of(a[0]) == split.document_of(b[0])
                if rows.relation[row] == 0:
                    assert same
                    assert b[0] > a[-1]
                    if len(a) + len(b) < LENGTH - 2 - separators:
                        assert b[0] == a[-1] + 1
                else:
                    assert not same or split.num_documents == 1


@given(text=documents)
def test_segments(text):
    source, _ = planned(SegmentPair(length=LENGTH, separators=2), text)
    rows = all_rows(source)
    for row in range(source.num_rows):
        a, b = parted(rows, row, separators=2)
        ones = [0] * (len(a) + 2) + [1] * (len(b) + 2)
        assert rows.coordinates.segment[row].tolist() == ones + [0] * (LENGTH - len(ones))
        assert (rows.pieces[row, len(ones) :] == PAD).all()


@given(strategies.integers(1, 40), strategies.integers(1, 40), strategies.integers(2, 30))
def test_the_longer_text_is_cut_piece_by_piece(num_a, num_b, room):
    left_a, left_b = num_a, num_b
    while left_a + left_b > room:
        if left_a > left_b:
            left_a -= 1
        else:
            left_b -= 1
    assert tuple(int(n) for n in longest_first(np.array(num_a), np.array(num_b), room)) == (
        left_a,
        left_b,
    )


def test_half_of_the_rows_are_random_where_a_chunk_can_be_parted():
    source, _ = planned(SegmentPair(length=LENGTH, short=0.0), MANY)
    relation = np.concatenate([all_rows(source, epoch).relation for epoch in range(20)])
    assert relation.mean() == pytest.approx(0.5, abs=0.03)


def test_single_sentences_always_have_a_random_partner():
    source, _ = planned(SegmentPair(length=LENGTH), [[[4]], [[5]], [[3]]])
    assert all_rows(source).relation.tolist() == [1, 1, 1]


def test_a_true_pair_of_sentences_by_hand():
    source, _ = planned(SentencePair(length=12), [[[2], [1, 1]], [[3], [1]]])
    seen = set()
    for epoch in range(20):
        rows = all_rows(source, epoch)
        seen |= {
            tuple(pieces)
            for pieces, r in zip(rows.pieces.tolist(), rows.relation, strict=True)
            if not r
        }
    assert seen == {
        (CLS, 100, 101, SEP, 102, 103, SEP, PAD, PAD, PAD, PAD, PAD),
        (CLS, 104, 105, 106, SEP, 107, SEP, PAD, PAD, PAD, PAD, PAD),
    }


def test_random_texts_come_from_everywhere_else():
    text = [[[1], [1]], [[1]], [[1], [1], [1]], [[1]]]
    source, split = planned(SentencePair(length=LENGTH), text)
    partners = {split.document_of(parted(all_rows(source, epoch), 1)[1][0]) for epoch in range(60)}
    assert partners == {0, 2, 3}


def test_text_is_cut_at_both_ends():
    source, _ = planned(SentencePair(length=10), [[[20]], [[4]]])
    rows = [source.rows(np.array([0]), epoch) for epoch in range(50)]
    starts = {int(r.pieces[0, 1]) - FIRST_PIECE for r in rows}
    assert starts == {0, 1, 2, 3}  # 4 of its 7 pieces are kept


def test_short_chunks_are_as_frequent_as_asked():
    full = planned(SegmentPair(length=LENGTH, short=0.0), MANY)[0]
    some = planned(SegmentPair(length=LENGTH, short=0.5), MANY)[0]
    assert some.num_rows > 1.2 * full.num_rows
