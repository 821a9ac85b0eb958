"""Rows of translations, place by place, and the selections of documents that they are read from."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from numbered_text import CLS, PAD, SEP, NumberedSplit, all_rows, documents, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import TranslationPair
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START
from bertwright.text.selected import SelectedSplit, languages_apart, translations_apart

# Sides of 2, 3; 2, 1; 30, 2 pieces, in words of one and two.
TEXT = [[[2]], [[1, 2]], [[1, 1]], [[1]], [[1] * 30], [[1, 1]]]


def rows_of(**settings: Any):
    source, _ = planned(TranslationPair(length=16, **settings), TEXT)
    return all_rows(source)


def test_a_row_is_both_sides_each_counted_from_its_start() -> None:
    rows = rows_of()
    coordinates = rows.coordinates
    first = [CLS, 100, 101, SEP, CLS, 102, 103, 104, SEP, *[PAD] * 7]
    assert rows.pieces[0].tolist() == first
    assert coordinates.position[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, *[0] * 7]
    assert coordinates.document[0].tolist() == [*[0] * 9, *[-1] * 7]
    assert coordinates.language[0, :9].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert coordinates.word[0].tolist() == [-1, 0, 0, -1, -1, 1, 2, 2, -1, *[-1] * 7]
    assert coordinates.sentence[0].tolist() == [-1, 0, 0, -1, -1, 1, 1, 1, -1, *[-1] * 7]
    assert coordinates.segment is None
    # The long side loses its last pieces, and nothing else does.
    assert rows.pieces[2].tolist() == [CLS, *range(108, 118), SEP, CLS, 138, 139, SEP]


def test_positions_may_go_on() -> None:
    assert rows_of(restart=False).coordinates.position[0, :9].tolist() == list(range(9))


def test_packed_pairs_are_isolated() -> None:
    rows = rows_of(packing=True)
    assert len(rows.pieces) == 2
    pair = [CLS, 105, 106, SEP, CLS, 107, SEP]
    assert rows.pieces[0, 9:].tolist() == pair
    assert rows.coordinates.document[0].tolist() == [*[0] * 9, *[1] * 7]
    assert rows.coordinates.position[0, 9:].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert rows.coordinates.word[0, 9:].tolist() == [-1, 3, 4, -1, -1, 5, -1]


def test_without_translations_there_are_no_rows() -> None:
    with pytest.raises(UserError, match="holds no translations"):
        planned(TranslationPair(length=16), [[[1, 2]]])


@given(text=documents)
def test_a_selection_reads_as_its_documents_alone(text: Any) -> None:
    whole = NumberedSplit.of(text)
    for split in languages_apart(cast(Any, whole)):
        number = whole.language_names.index(split.name)
        mine = np.flatnonzero(whole.languages == number)
        bounds = zip(whole.document_starts[mine], whole.document_starts[mine + 1], strict=True)
        expected = np.concatenate([100 + np.arange(start, stop) for start, stop in bounds])
        pieces, marks = (found[:, 0] for found in split.gather(np.arange(split.num_pieces), 1))
        assert pieces.tolist() == expected.tolist()
        starts = split.document_starts[:-1], split.sentence_starts[:-1]
        for known, mark in zip(starts, (DOCUMENT_START, SENTENCE_START), strict=True):
            assert np.flatnonzero(marks & mark).tolist() == known.tolist()
        length = min(3, split.num_pieces)
        at = np.arange(split.num_pieces - length + 1)[:, None] + np.arange(length)
        assert split.gather(at[:, 0], length)[0].tolist() == expected[at].tolist()
        assert (split.languages == number).all()
        assert not len(split.translations)


@given(text=documents)
def test_translations_are_selected_by_their_two_languages(text: Any) -> None:
    whole = cast(Any, NumberedSplit.of(text))
    found: list[int] = []
    for split in translations_apart(whole):
        assert split.translations.tolist() == list(range(1, split.num_documents, 2))
        names = [split.language_names[number] for number in split.languages]
        assert {f"{a}-{b}" for a, b in zip(names[::2], names[1::2], strict=True)} == {split.name}
        first = split.gather(split.document_starts[:-1], 1)[0][:, 0]
        found += whole.document_of(first)[1::2].tolist()
    assert sorted(found) == whole.translations.tolist()


def test_a_selection_lies_where_it_lies_in_the_whole() -> None:
    whole = NumberedSplit.of(TEXT)
    split = SelectedSplit(cast(Any, whole), np.array([1, 2, 5]), "some")
    assert list(split._stretches(1, 7)) == [(3, 7), (38, 40)]
