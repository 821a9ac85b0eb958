"""What is asked, by hand."""

import numpy as np
import pytest
from numbered_text import CLS, MASK, SEP, SPECIALS, all_rows, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import Packed, SegmentPair
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.corruption import Replace
from bertwright.examples.questions import hide, next_pieces, sentence_relation
from bertwright.examples.selection import Tokens
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

ALWAYS_MASK = Replace(mask=1, random=0, keep=0)
PIECES = np.array([[CLS, 10, 11, SEP], [CLS, 12, SEP, 0]], np.int32)
ROWS = Rows(
    PIECES,
    Coordinates(document=np.array([[0, 0, 0, 0], [0, 0, 0, -1]], np.int32)),
    PIECES < 10,
    np.array([1, 0]),
)


def hidden(rows, epoch=0, row_index=0, corruption=ALWAYS_MASK, rate=0.5):
    draw = Draw(3, epoch, row_index)
    shown, question = hide(rows, Tokens(rate=rate), corruption, Vocabulary(50, SPECIALS), draw, 0.0)
    return shown.pieces, question


def test_what_is_hidden_is_asked():
    pieces, question = hidden(ROWS)
    assert pieces.tolist() == [[CLS, MASK, MASK, SEP], [CLS, MASK, SEP, 0]]
    assert question.where.tolist() == [1, 2, 5, 5]
    assert question.target.tolist() == [10, 11, 12, 12]
    assert question.weight.tolist() == [1, 1, 1, 0]
    assert (question.where.dtype, question.target.dtype) == (np.int64, np.int64)
    assert (pieces.dtype, question.weight.dtype) == (np.int32, np.float32)


def test_what_is_hidden_depends_on_row_and_epoch_alone():
    source, _ = planned(Packed(length=32), [[[1] * 400]])
    index, epoch = np.array([4, 1, 6]), np.array([0, 2, 2])
    together, question = hidden(source.rows(index, epoch), epoch, index, Replace())
    for i in range(3):
        rows = source.rows(index[i : i + 1], epoch[i : i + 1])
        alone, asked = hidden(rows, int(epoch[i]), int(index[i]), Replace())
        np.testing.assert_array_equal(alone[0], together[i])
        np.testing.assert_array_equal(asked.where + 32 * i, question.where.reshape(3, -1)[i])
        again, _ = hidden(rows, int(epoch[i]) + 1, int(index[i]), Replace())
        assert (again != alone).any()


def test_static_masks_come_back():
    source, _ = planned(SegmentPair(length=32), [[[1] * 90, [1] * 30]] * 3)
    rows, static = all_rows(source), Replace(when="static", copies=4)
    first, _ = hidden(rows, 1, np.arange(source.num_rows), static)
    again, _ = hidden(rows, 5, np.arange(source.num_rows), static)
    other, _ = hidden(rows, 2, np.arange(source.num_rows), static)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_next_piece_of_the_same_document():
    question = next_pieces(ROWS)
    assert question.where.tolist() == [0, 1, 2, 4, 5, 6]
    assert question.target.tolist() == [10, 11, SEP, 12, SEP, 0]
    assert question.weight.tolist() == [1, 1, 1, 1, 1, 0]


def test_no_document_follows_another():
    rows = Rows(
        np.array([[CLS, 10, SEP, CLS, 11, SEP]], np.int32),
        Coordinates(document=np.array([[0, 0, 0, 1, 1, 1]], np.int32)),
        np.array([[True, False, True, True, False, True]]),
    )
    question = next_pieces(rows)
    assert question.target[question.weight > 0].tolist() == [10, SEP, 11, SEP]


def test_without_documents_every_place_has_a_next_piece():
    question = next_pieces(Rows(PIECES[:1], Coordinates(), ROWS.special[:1]))
    assert question.target.tolist() == [10, 11, SEP]
    assert question.weight.tolist() == [1, 1, 1]


def test_the_relation_is_asked_at_the_first_place():
    question = sentence_relation(ROWS, ("next", "random"))
    assert question.where.tolist() == [0, 4]
    assert question.target.tolist() == [1, 0]
    assert question.weight.tolist() == [1, 1]


def test_only_pairs_have_a_relation():
    with pytest.raises(UserError, match="segment-pair"):
        sentence_relation(Rows(PIECES, Coordinates(), ROWS.special), ("next",))
