"""Which piece belongs to which word."""

from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START, mark_pieces


def test_the_bits_differ() -> None:
    assert WORD_START | SENTENCE_START | DOCUMENT_START == 7


def test_a_word_starts_once_whatever_it_is_cut_into() -> None:
    #       it, di, dn, 't, rain
    offsets = [(0, 2), (3, 5), (5, 7), (7, 9), (10, 14)]
    marks, word_bytes = mark_pieces("it didn't rain", offsets)
    assert marks == [1, 1, 0, 1, 1]
    assert word_bytes == [2, 4, 0, 2, 4]  # the piece 't covers two words, counted at the first


def test_white_space_belongs_to_the_word_after_it() -> None:
    marks, word_bytes = mark_pieces("a  b", [(0, 1), (1, 2), (2, 4)])
    assert marks == [1, 1, 0]
    assert word_bytes == [1, 1, 0]


def test_pieces_of_one_character_make_one_word() -> None:
    marks, word_bytes = mark_pieces("\u20ac5", [(0, 1), (0, 1), (0, 1), (1, 2)])
    assert marks == [1, 0, 0, 1]
    assert word_bytes == [3, 0, 0, 1]


def test_a_piece_over_two_words_marks_the_first_and_counts_both() -> None:
    marks, word_bytes = mark_pieces('so." Then', [(0, 2), (2, 4), (4, 9)])
    assert marks == [1, 1, 1]
    assert word_bytes == [2, 2, 4]


def test_a_word_that_has_no_piece_counts_nowhere() -> None:
    marks, word_bytes = mark_pieces("\x01 a \x01 b", [(2, 3), (6, 7)])
    assert marks == [1, 1]
    assert word_bytes == [1, 1]


def test_sentences_start_at_the_first_piece_after_their_start() -> None:
    marks, _ = mark_pieces("a. b. c", [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7)], [2, 5])
    assert [mark & SENTENCE_START for mark in marks] == [0, 0, 2, 0, 2]
