"""What is taken out of a text and what is asked for make up the text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers
from numbered_text import (
    CLS,
    FIRST_PIECE,
    MASK,
    PAD,
    SEP,
    SPECIALS,
    NumberedSplit,
    all_rows,
    documents,
    planned,
)

from bertwright.errors import UserError
from bertwright.examples.assembly import DocSentences, FullSentences, TranslationPair
from bertwright.examples.coordinates import Rows
from bertwright.examples.corruption import Replace
from bertwright.examples.noising import Fragment, Infilling, Noising, Sentinels, Translation
from bertwright.examples.questions import Question
from bertwright.examples.selection import Partition
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

SIZE = 100_000
VOCABULARY = Vocabulary(SIZE, SPECIALS)
LENGTH = 40


def rows_of(text, length: int = LENGTH) -> Rows:
    source = FullSentences(length=length).plan(NumberedSplit.of(text), SPECIALS, 0)
    index = np.arange(source.num_rows)
    return source.rows(index, np.zeros_like(index))


def long_rows(number: int = 300, length: int = 128) -> Rows:
    sentences = [[[1, 2, 1, 3, 1, 1, 2] for _ in range(4000 * number // 300)]]
    return rows_of(sentences, length)


def asked(noising: Noising, rows: Rows, seed: int = 0) -> tuple[Rows, Question]:
    index = np.arange(len(rows.pieces))
    return noising.noised(rows, VOCABULARY, Draw(seed, 0, index), 0.5)


def of_row(values: np.ndarray, number: int, num_rows: int) -> np.ndarray:
    return values.reshape(num_rows, -1)[number]


@given(documents, integers(0, 9))
def test_sentinels_filled_with_their_spans_give_the_text_back(text, seed):
    rows = rows_of(text)
    shown, question = asked(Sentinels(), rows, seed)
    assert shown.pieces.shape == rows.pieces.shape
    for number in range(len(rows.pieces)):
        target = of_row(question.target, number, len(rows.pieces))
        target = target[of_row(question.weight, number, len(rows.pieces)) > 0]
        sentinels = np.flatnonzero(target >= SIZE - 100)
        assert target[sentinels].tolist() == [SIZE - 1 - n for n in range(len(sentinels))]
        assert sentinels[-1] == len(target) - 2
        assert target[-1] == SEP
        spans = {int(target[at]): target[at + 1 : to] for at, to in pairwise(sentinels)}
        filled: list[int] = []
        for piece in shown.pieces[number][shown.real[number]].tolist():
            filled += spans[piece].tolist() if piece in spans else [piece]
        assert sorted(filled) == sorted(rows.pieces[number][rows.real[number]].tolist())
        whole = rows.pieces[number][rows.real[number]].tolist()
        if SEP not in whole[:-1]:  # a span across the end of a document leaves that behind it
            assert filled == whole


@given(documents, integers(0, 9))
def test_each_target_is_given_those_before_it(text, seed):
    rows = rows_of(text)
    for noising, begin in ((Sentinels(), PAD), (Infilling(), SEP), (Fragment(), MASK)):
        shown, question = asked(noising, rows, seed)
        target, before = (
            v.reshape(len(rows.pieces), -1) for v in (question.target, question.beside["given"])
        )
        weight = question.weight.reshape(target.shape) > 0
        assert target.shape[1] == noising.targets(LENGTH)
        assert (before[:, 0] == begin).all()
        assert np.array_equal(before[:, 1:][weight[:, 1:]], target[:, :-1][weight[:, 1:]])
        assert (np.diff(weight.astype(int), axis=1) <= 0).all()
        row, place = np.divmod(question.where[question.weight > 0], LENGTH)
        assert shown.real[row, place].all()


def test_a_partition_spends_the_budget_in_spans_of_the_mean_and_begins_with_text():
    rows = long_rows()
    chosen = Partition().select(rows, VOCABULARY, Draw(0, 0, np.arange(len(rows.pieces))), 0.0)
    num_chosen = chosen.weight.sum(axis=1).astype(int)
    assert (num_chosen == np.rint(0.15 * rows.real.sum(axis=1))).all()
    for where, unit, number in zip(chosen.where, chosen.unit, num_chosen, strict=True):
        assert unit[number - 1] + 1 == round(number / 3)
        assert where[0] > 1
        gaps = np.diff(where[:number])
        assert np.array_equal(gaps > 1, np.diff(unit[:number]) == 1)


@given(documents, integers(0, 9))
def test_infilling_keeps_what_it_shows_in_order_and_asks_for_everything(text, seed):
    rows = rows_of(text)
    shown, question = asked(Infilling(permuted=False), rows, seed)
    assert np.array_equal(question.target.reshape(rows.pieces.shape), rows.pieces)
    assert np.array_equal(question.weight.reshape(rows.pieces.shape) > 0, rows.real)
    for number in range(len(rows.pieces)):
        seen = shown.pieces[number][shown.real[number]]
        whole = rows.pieces[number][rows.real[number]].tolist()
        kept = seen[seen != MASK].tolist()
        assert seen[0] == whole[0]
        assert len(kept) < len(whole)
        text_kept = [p for p in kept if p >= FIRST_PIECE]
        assert text_kept == sorted(text_kept)
        assert set(text_kept) <= set(whole)


def test_infilling_hides_words_at_the_rate_in_spans_of_the_mean():
    rows = long_rows()
    shown, _ = asked(Infilling(permuted=False), rows)
    index = np.arange(len(rows.pieces))
    words = rows.coordinates.word.max(axis=1) + 1
    covered, heads, inserted = Infilling()._spans(words, 128, Draw(0, 0, index))
    assert (covered.sum(axis=1) == np.rint(0.3 * words)).all()
    num_masks = heads.sum() + inserted.sum()
    assert covered.sum() / num_masks == pytest.approx(3.0, rel=0.1)
    assert inserted.sum() / num_masks == pytest.approx(np.exp(-3.0), rel=0.25)
    assert (shown.pieces == MASK).any(axis=1).all()


@given(documents, integers(0, 9))
def test_permuted_sentences_stay_whole_and_special_tokens_where_they_are(text, seed):
    source = DocSentences(length=LENGTH).plan(NumberedSplit.of(text), SPECIALS, 0)
    index = np.arange(source.num_rows)
    rows = source.rows(index, np.zeros_like(index))
    shown, _ = asked(Infilling(rate=0.01), rows, seed)
    for number in range(len(rows.pieces)):
        sentence = dict(zip(rows.pieces[number], rows.coordinates.sentence[number], strict=True))
        seen = [int(p) for p in shown.pieces[number] if p >= FIRST_PIECE]
        runs = [sentence[p] for p in seen]
        changes = 1 + sum(a != b for a, b in pairwise(runs))
        assert not runs or changes == len(set(runs))
        assert shown.pieces[number, 0] == SPECIALS.start
        assert shown.pieces[number][shown.real[number]][-1] == SEP


@given(documents, integers(0, 9))
def test_a_fragment_is_one_run_of_half_of_the_text_at_its_own_positions(text, seed):
    rows = rows_of(text)
    noising = Fragment(corruption=Replace(mask=1.0, random=0.0, keep=0.0))
    shown, question = asked(noising, rows, seed)
    for number in range(len(rows.pieces)):
        real = of_row(question.weight, number, len(rows.pieces)) > 0
        position = of_row(question.beside["position"], number, len(rows.pieces))[real]
        target = of_row(question.target, number, len(rows.pieces))[real]
        num_text = int((~rows.special[number]).sum())
        assert len(target) == min(num_text, max(5, np.rint(0.5 * num_text)))
        assert np.array_equal(target, np.arange(target[0], target[0] + len(target)))
        assert np.array_equal(rows.pieces[number][position], target)
        assert (shown.pieces[number][position] == MASK).all()
        assert int((shown.pieces[number] != rows.pieces[number]).sum()) == len(target)


def test_a_fragment_of_one_piece_is_masked_modelling_and_one_of_all_is_a_language_model():
    rows = long_rows(10)
    hidden = Replace(mask=1.0, random=0.0, keep=0.0)
    number, text = len(rows.pieces), ~rows.special

    shown, question = asked(Fragment(rate=0.001, least=1, corruption=hidden), rows)
    assert (question.weight.reshape(number, -1).sum(axis=1) == 1).all()
    assert (shown.pieces.ravel()[question.where] == MASK).all()
    assert np.array_equal(question.target, rows.pieces.ravel()[question.where])
    assert (question.beside["given"] == MASK).all()

    shown, question = asked(Fragment(rate=1.0, corruption=hidden), rows)
    assert (shown.pieces[text] == MASK).all()
    for row in range(number):
        real = of_row(question.weight, row, number) > 0
        target = of_row(question.target, row, number)[real]
        given = of_row(question.beside["given"], row, number)[real]
        assert np.array_equal(target, rows.pieces[row][text[row]])
        assert given.tolist() == [MASK, *target[:-1].tolist()]


@pytest.mark.parametrize(
    ("noising", "rate"), [(Sentinels(), 0.15), (Infilling(), 0.3), (Fragment(), 0.5)]
)
def test_a_question_says_how_much_was_hidden(noising: Noising, rate: float):
    rows = long_rows()
    _, question = asked(noising, rows)
    hidden, places = question.hidden
    assert places == rows.real.sum()
    assert hidden / places == pytest.approx(rate, abs=0.02)


def test_too_few_sentinels_are_an_error_that_says_so():
    with pytest.raises(UserError, match=r"noising\.number is 2"):
        asked(Sentinels(number=2), long_rows(30))


def test_one_side_is_read_and_the_other_is_asked_for() -> None:
    sizes = [(3, 4), (6, 2), (5, 30)]
    pairs = [[[1] * size] for both in sizes for size in both]
    rows = all_rows(planned(TranslationPair(length=LENGTH), pairs)[0])
    shown, question = asked(Translation(), rows)
    width, begin = Translation().targets(LENGTH), FIRST_PIECE
    for number, (first, second) in enumerate(sizes):
        read = shown.pieces[number][shown.real[number]].tolist()
        assert read == [CLS, *range(begin, begin + first), SEP]
        weight = of_row(question.weight, number, 3) > 0
        whole = [*range(begin + first, begin + first + second), SEP]
        target = of_row(question.target, number, 3)[weight].tolist()
        assert target == whole[:width]
        given = of_row(question.beside["given"], number, 3)[weight].tolist()
        assert given == [CLS, *target[:-1]]
        begin += first + second


def test_what_holds_no_pair_is_not_translated() -> None:
    with pytest.raises(UserError, match="translation-pair"):
        asked(Translation(), rows_of([[[1, 2, 1]]]))


def test_sentinels_are_tokens_of_a_vocabulary_with_gaps() -> None:
    """Ids that stand for no token are left out, from the last one down."""
    sparse = Vocabulary(VOCABULARY.size, SPECIALS, missing=frozenset({VOCABULARY.size - 2}))
    rows = long_rows(20)
    _, question = Sentinels().noised(rows, sparse, Draw(0, 0, np.arange(len(rows.pieces))), 0.0)
    target = question.target[question.weight > 0]
    assert VOCABULARY.size - 1 in target
    assert VOCABULARY.size - 2 not in target
    assert VOCABULARY.size - 3 in target
