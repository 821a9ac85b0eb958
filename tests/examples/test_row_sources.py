"""Laws of every assembly."""

import numpy as np
import pytest
from hypothesis import given
from numbered_text import CLS, FIRST_PIECE, PAD, SEP, all_rows, documents, planned

from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly

LENGTH = 16
KINDS = {
    "packed": {"kind": "packed"},
    "packed streams": {"kind": "packed", "isolated": False},
    "contiguous": {"kind": "contiguous"},
    "full-sentences": {"kind": "full-sentences"},
    "doc-sentences": {"kind": "doc-sentences"},
    "doc-sentences packing": {"kind": "doc-sentences", "packing": True},
    "segment-pair": {"kind": "segment-pair"},
    "segment-pair of RoBERTa": {"kind": "segment-pair", "separators": 2},
    "sentence-pair": {"kind": "sentence-pair"},
    "connected-pair": {
        "kind": "connected-pair",
        "connectives": [f"{p} {p + 1}" for p in range(FIRST_PIECE, FIRST_PIECE + 300)],
    },
    "translation-pair": {"kind": "translation-pair"},
    "translation-pair packing": {"kind": "translation-pair", "packing": True},
    "dialogue": {"kind": "dialogue", "fake": 0.5},
    "half-reversed pairs": {"kind": "half-reversed", "of": "segment-pair"},
    "half-reversed sentences": {"kind": "half-reversed", "of": "full-sentences"},
    "mixture": {
        "kind": "mixture",
        "alpha": 0.5,
        "parts": {"text": {"kind": "doc-sentences"}, "pairs": {"kind": "translation-pair"}},
    },
}
MAY_FIND_NOTHING = (
    *("packed", "contiguous", "connected-pair", "translation-pair", "dialogue", "mixture"),
)
LONG = [[[1, 2, 3, 1], [2, 2]], [[3]], [[1] * 30, [4, 4, 2]], [[2, 1]] * 4, [[3, 2]], [[1, 1]]]


def fields(rows):
    c = rows.coordinates
    arrays = [rows.pieces, rows.special, rows.relation]
    return [
        *arrays,
        c.position,
        c.segment,
        c.document,
        c.word,
        c.sentence,
        c.language,
        c.connective,
    ]


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def assembly(request):
    return Assembly.choose({**request.param, "length": LENGTH})


def test_every_kind_is_tried():
    """Histories are not text: test_histories has their laws."""
    tried = {settings["kind"] for settings in KINDS.values()}
    assert {*tried, "item-history"} == set(Assembly.kinds())


def test_a_row_does_not_depend_on_its_batch_mates(assembly):
    source, _ = planned(assembly, LONG)
    index, epoch = np.array([2, 0, 1]), np.array([7, 0, 3])
    together = fields(source.rows(index, epoch))
    for i in range(3):
        alone = fields(source.rows(index[i : i + 1], int(epoch[i])))
        for one, many in zip(alone, together, strict=True):
            assert (one is None) == (many is None)
            if one is not None:
                np.testing.assert_array_equal(one[0], many[i])


def test_only_the_seed_changes_a_plan(assembly):
    first, again = planned(assembly, LONG)[0], planned(assembly, LONG)[0]
    np.testing.assert_array_equal(all_rows(first, 5).pieces, all_rows(again, 5).pieces)


@given(text=documents)
def test_rows_are_well_formed(text):
    for settings in KINDS.values():
        try:
            source, split = planned(Assembly.choose({**settings, "length": LENGTH}), text)
        except UserError:
            assert settings["kind"] in MAY_FIND_NOTHING
            continue
        rows = all_rows(source, epoch=1)
        coordinates = rows.coordinates
        assert rows.pieces.shape == (source.num_rows, LENGTH)
        np.testing.assert_array_equal(rows.special, rows.pieces < FIRST_PIECE)
        np.testing.assert_array_equal(rows.real, rows.pieces != PAD)
        # Padding is on the right, and what stands before it is an end.
        num_real = rows.real.sum(axis=1)
        np.testing.assert_array_equal(rows.real, np.arange(LENGTH) < num_real[:, None])
        if settings["kind"] != "contiguous":
            assert (rows.pieces[:, 0] == CLS).all()
            assert (rows.pieces[np.arange(source.num_rows), num_real - 1] == SEP).all()
        for array in (coordinates.word, coordinates.sentence):
            np.testing.assert_array_equal(array == -1, rows.special)
            for indices in array:
                named = indices[indices >= 0]
                assert sorted(set(named)) == list(range(len(set(named))))
                assert (np.diff(named) >= 0).all()
        # Text is in the language of its document.
        languages = split.languages[split.document_of(rows.pieces[~rows.special])]
        np.testing.assert_array_equal(coordinates.language[~rows.special], languages)
        # Pieces of one word share an index; neighbours of different words do not.
        word = split.word_of(rows.pieces)
        text_pair = ~rows.special[:, 1:] & ~rows.special[:, :-1]
        np.testing.assert_array_equal(
            (coordinates.word[:, 1:] == coordinates.word[:, :-1])[text_pair],
            (word[:, 1:] == word[:, :-1])[text_pair],
        )
        for array in fields(rows)[3:]:
            assert array is None or array.dtype == np.int32


@given(text=documents)
def test_contiguous_rows_are_the_text(text):
    try:
        source, split = planned(Assembly.choose({"kind": "contiguous", "length": LENGTH}), text)
    except UserError:
        return
    stream: list[int] = []
    for start, stop in zip(split.document_starts[:-1], split.document_starts[1:], strict=True):
        stream += [*split.gather(np.array([start]), int(stop - start))[0][0].tolist(), SEP]
    read = all_rows(source, epoch=3).pieces.ravel().tolist()
    assert read == stream[: len(read)]
    assert len(stream) - len(read) < 2 * LENGTH


@given(text=documents)
def test_isolated_documents_are_documents(text):
    for settings in (KINDS["packed"], KINDS["doc-sentences"], KINDS["doc-sentences packing"]):
        try:
            source, split = planned(Assembly.choose({**settings, "length": LENGTH}), text)
        except UserError:
            continue
        for epoch in (0, 1):
            rows = all_rows(source, epoch)
            document, position = rows.coordinates.document, rows.coordinates.position
            for row in range(source.num_rows):
                for inner in range(document[row].max() + 1):
                    places = np.flatnonzero(document[row] == inner)
                    np.testing.assert_array_equal(places, places[0] + np.arange(len(places)))
                    np.testing.assert_array_equal(position[row, places], np.arange(len(places)))
                    pieces = rows.pieces[row, places]
                    assert pieces[0] == CLS
                    assert CLS not in pieces[1:]
                    assert len(set(split.document_of(pieces[pieces >= FIRST_PIECE]))) <= 1
                of_text = split.document_of(rows.pieces[row][~rows.special[row]])
                inner_of_text = document[row][~rows.special[row]]
                assert len(set(of_text)) == len(set(inner_of_text))
