"""Examples to rows: exact integers, nothing lost but what is too long."""

from itertools import product

import pytest

from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.formats.examples import Example, Question, TaggedWords
from recipes_at_toy_size import toy


def spelled(maker: RowMaker, pieces: list[int]) -> str:
    return " ".join(maker.tokenizer.piece(piece) for piece in pieces)


def test_relations_of_segments_are_told_of_them(wordpiece) -> None:
    (row,) = RowMaker.of(toy("xlnet"), wordpiece, 16).rows([Example("the red bird", "the tree")])
    assert row.segments == [0, 0, 0, 0, 0, 1, 1, 1]


def test_pairs_of_bert_have_one_separator_and_segments(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 16)
    row, single = maker.rows([Example("the red bird", "the tree"), Example("the tree")])
    assert spelled(maker, row.pieces) == "[CLS] the red bird [SEP] the tree [SEP]"
    assert row.segments == [0, 0, 0, 0, 0, 1, 1, 1]
    assert spelled(maker, single.pieces) == "[CLS] the tree [SEP]"
    assert single.segments == [0, 0, 0, 0]


def test_pairs_of_roberta_have_two_separators_and_no_segments(byte_bpe) -> None:
    maker = RowMaker.of(toy("roberta"), byte_bpe, 32)
    (row,) = maker.rows([Example("red", "red")])
    red = byte_bpe.encode("red")
    start, end = byte_bpe.specials.start, byte_bpe.specials.end
    assert row.pieces == [start, *red, end, end, *red, end]
    assert row.segments is None


def test_separators_are_those_of_an_assembly_of_pairs(byte_bpe) -> None:
    recipe = toy("roberta", "assembly={kind: sentence-pair, separators: 1, length: 24}")
    assert RowMaker.of(recipe, byte_bpe, 24).separators == 1


def test_the_longer_text_of_a_pair_is_cut_first(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 9)
    (row,) = maker.rows([Example("red red red red red red", "the the")])
    assert spelled(maker, row.pieces) == "[CLS] red red red red [SEP] the the [SEP]"


def test_a_word_is_read_at_its_first_piece(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 24)
    words = ("the", "birdhouse", "red", "bird")
    (row,) = maker.rows([TaggedWords(words)])
    pieces = [wordpiece.encode(word) for word in words]
    assert len(pieces[1]) > 1
    second = 2 + len(pieces[1])
    assert row.places == (1, 2, second, second + 1)
    assert row.pieces[1:-1] == [piece for word in pieces for piece in word]


@pytest.mark.parametrize("length", [10, 13])
def test_windows_of_a_pair_lose_no_more_than_is_cut_without_them(wordpiece, length: int) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, length)
    for first, second in product((1, 4, 5, 6, 30), repeat=2):
        example = Example("the " * first, "bird " * second)
        (cut,), windows = maker.rows([example]), maker.rows([example], 2)
        assert all(len(row.pieces) <= length for row in windows)
        assert {row.num_cut for row in windows} <= set(range(cut.num_cut + 1))
        seen = max(row.pieces.count(wordpiece.encode("the")[0]) for row in windows)
        assert seen == first - windows[0].num_cut
        assert sum(len(row.pieces) for row in windows) >= len(cut.pieces)


def test_a_word_without_pieces_keeps_a_place(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 24)
    (row,) = maker.rows([TaggedWords(("the", "\u0000", "bird"))])
    assert row.places == (1, 2, 3)


def test_a_long_sentence_goes_on_in_further_rows(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 6)
    short, *rows = maker.rows([TaggedWords(("the",)), TaggedWords(("red", "bird", "the") * 3)])
    assert [row.first_word for row in rows] == [0, 4, 8]
    assert [row.example for row in (short, *rows)] == [0, 1, 1, 1]
    assert [len(row.places) for row in rows] == [4, 4, 1]
    assert all(len(row.pieces) <= 6 for row in rows)


def test_a_word_longer_than_a_row_is_cut_and_keeps_its_place(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 6)
    rows = maker.rows([TaggedWords(("the", "birdhousebirdhousebirdhouse", "bird"))])
    assert [row.places for row in rows] == [(1,), (1,), (1,)]
    assert len(rows[1].pieces) == 6


@pytest.mark.parametrize("length", [8, 9, 16])
def test_a_question_longer_than_a_row_leaves_half_of_it_to_the_text(wordpiece, length: int) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, length)
    text, question = "the red bird in the tree", "red " * 40
    rows = maker.windows([Question(question, text)], 128, 64)
    assert all(len(row.pieces) <= length for row in rows)
    room = length - 3
    assert {row.num_cut for row in rows} == {40 - room // 2}
    seen = {place for row in rows for place in row.characters}
    ((_, characters),) = wordpiece.encode_spans([text])
    assert seen == set(characters)
