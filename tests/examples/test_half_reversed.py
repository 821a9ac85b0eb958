"""The reversed half: the same stretches of text from their end, every piece where it stood."""

import numpy as np
import pytest
from hypothesis import given
from numbered_text import CLS, FIRST_PIECE, PAD, SEP, all_rows, documents, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import (
    Assembly,
    Contiguous,
    Dialogue,
    DocSentences,
    FullSentences,
    HalfReversed,
    Mixture,
    Packed,
    SegmentPair,
    SentencePair,
)
from bertwright.examples.coordinates import Rows

LENGTH = 14
FRAMED = [Packed(isolated=False), FullSentences(), DocSentences(), SegmentPair(), SentencePair()]
EVERY = [*FRAMED, Contiguous()]
every_assembly = pytest.mark.parametrize("of", EVERY, ids=lambda of: of.kind)


def halves(of: Assembly, text, epoch: int = 0) -> tuple[Rows, Rows] | None:
    """The rows of a source and the same reversed; None where the text is too short for a row."""
    try:
        source, _ = planned(HalfReversed(length=LENGTH, of=of), text)
    except UserError:
        return None
    number = np.arange(source.num_rows // 2)
    forward, backward = (source.rows(number + n, epoch) for n in (0, len(number)))
    return forward, backward


@every_assembly
@given(text=documents)
def test_a_reversed_row_is_the_row_of_the_same_stretch_read_backwards(of, text):
    for epoch in range(2):
        if (found := halves(of, text, epoch)) is None:
            return
        forward, backward = found
        assert not forward.coordinates.backward.any()
        assert backward.coordinates.backward.all()
        np.testing.assert_array_equal(forward.real, backward.real)
        frame = 0 if isinstance(of, Contiguous) else 1
        for one, other, real in zip(forward.pieces, backward.pieces, forward.real, strict=True):
            inside = slice(frame, real.sum() - frame)
            np.testing.assert_array_equal(other[inside], one[inside][::-1])
            np.testing.assert_array_equal(other[:frame], one[:frame])
            np.testing.assert_array_equal(other[inside.stop :], one[inside.stop :])


@every_assembly
@given(text=documents)
def test_every_piece_has_the_position_that_it_has_in_the_row_read_forward(of, text):
    if (found := halves(of, text)) is None:
        return
    forward, backward = found

    def where(rows: Rows) -> set[tuple[int, ...]]:
        row, place = np.nonzero(~rows.special)
        found = (row, rows.coordinates.position[row, place], rows.pieces[row, place])
        return {tuple(own) for own in np.stack(found, axis=1).tolist()}

    assert where(forward) == where(backward)
    number = forward.real.sum(axis=1, keepdims=True)
    place = np.broadcast_to(np.arange(LENGTH), forward.pieces.shape)
    np.testing.assert_array_equal(forward.coordinates.position, place)
    expected = np.where(forward.real, number - 1 - place, place)
    np.testing.assert_array_equal(backward.coordinates.position, expected)


@given(text=documents)
def test_the_text_that_comes_first_is_the_first_segment(text):
    if (found := halves(SegmentPair(separators=2), text)) is None:
        return
    _, rows = found
    place, segment = np.arange(LENGTH), rows.coordinates.segment
    for row, own in enumerate(segment):
        gap = np.nonzero(rows.pieces[row] == SEP)[0][0]
        np.testing.assert_array_equal(own, (place > gap) & rows.real[row])


def test_a_reversed_pair_by_hand():
    source, _ = planned(HalfReversed(length=10, of=SegmentPair(short=0.0)), [[[1, 1], [1, 2]]])
    first, second = (FIRST_PIECE + np.arange(n) for n in (2, 5))
    second = second[2:]
    rows = all_rows(source)
    forward, backward = rows.pieces[0], rows.pieces[1]
    assert forward.tolist() == [CLS, *first, SEP, *second, SEP, PAD, PAD]
    assert backward.tolist() == [CLS, *second[::-1], SEP, *first[::-1], SEP, PAD, PAD]
    coordinates = rows.coordinates
    assert coordinates.position[1].tolist() == [7, 6, 5, 4, 3, 2, 1, 0, 8, 9]
    assert coordinates.segment[1].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert coordinates.word[1].tolist() == [-1, 0, 0, 1, -1, 2, 3, -1, -1, -1]
    assert coordinates.sentence[1].tolist() == [-1, 0, 0, 0, -1, 1, 1, -1, -1, -1]


def test_what_is_evaluated_is_not_reversed():
    for of in EVERY:
        found = HalfReversed(length=LENGTH, of=of).evaluated
        assert found == of.model_copy(update={"length": LENGTH})


def test_rows_of_several_texts_and_mixtures_are_refused():
    with pytest.raises(ValueError, match="set isolated to false"):
        HalfReversed(of=Packed())
    with pytest.raises(ValueError, match="is dialogue, whose rows are not reversed"):
        HalfReversed(of=Dialogue())
    with pytest.raises(ValueError, match="own is half-reversed, whose rows have an order"):
        Mixture(parts={"own": HalfReversed(of=SegmentPair())})
