"""Boundary flags of tokens."""

from bertwright.data.tokenization.boundaries import (
    DOCUMENT_START,
    SENTENCE_START,
    WORD_START,
    token_boundaries,
)


def test_flags_are_distinct_bits() -> None:
    assert WORD_START | SENTENCE_START | DOCUMENT_START == 7


def test_word_starts_once() -> None:
    #       it, di, dn, 't, rain
    offsets = [(0, 2), (3, 5), (5, 7), (7, 9), (10, 14)]
    boundaries, word_bytes = token_boundaries("it didn't rain", offsets)
    assert boundaries == [1, 1, 0, 1, 1]
    assert word_bytes == [2, 4, 0, 2, 4]  # the token 't covers two words, counted at the first


def test_white_space_belongs_to_the_next_word() -> None:
    boundaries, word_bytes = token_boundaries("a  b", [(0, 1), (1, 2), (2, 4)])
    assert boundaries == [1, 1, 0]
    assert word_bytes == [1, 1, 0]


def test_tokens_of_one_character_are_one_word() -> None:
    boundaries, word_bytes = token_boundaries("\u20ac5", [(0, 1), (0, 1), (0, 1), (1, 2)])
    assert boundaries == [1, 0, 0, 1]
    assert word_bytes == [3, 0, 0, 1]


def test_token_over_two_words_counts_both() -> None:
    boundaries, word_bytes = token_boundaries('so." Then', [(0, 2), (2, 4), (4, 9)])
    assert boundaries == [1, 1, 1]
    assert word_bytes == [2, 2, 4]


def test_word_without_tokens_is_not_counted() -> None:
    boundaries, word_bytes = token_boundaries("\x01 a \x01 b", [(2, 3), (6, 7)])
    assert boundaries == [1, 1]
    assert word_bytes == [1, 1]


def test_sentence_start_flags() -> None:
    boundaries, _ = token_boundaries("a. b. c", [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7)], [2, 5])
    assert [flags & SENTENCE_START for flags in boundaries] == [0, 0, 2, 0, 2]
