"""Properties of every input format."""

import numpy as np
import pytest
from hypothesis import given

from bertwright.batches.formats import InputFormat
from bertwright.core.errors import UserError
from numbered_text import CLS, FIRST_TOKEN, PAD, SEP, all_sequences, documents, plan_text

LENGTH = 16
KINDS = {
    "packed": {"kind": "packed"},
    "packed streams": {"kind": "packed", "isolated": False},
    "contiguous": {"kind": "contiguous"},
    "contiguous-pair": {"kind": "contiguous-pair"},
    "full-sentences": {"kind": "full-sentences"},
    "doc-sentences": {"kind": "doc-sentences"},
    "doc-sentences packing": {"kind": "doc-sentences", "packing": True},
    "segment-pair": {"kind": "segment-pair"},
    "segment-pair of RoBERTa": {"kind": "segment-pair", "separators": 2},
    "sentence-pair": {"kind": "sentence-pair"},
    "connected-pair": {
        "kind": "connected-pair",
        "connectives": [f"{p} {p + 1}" for p in range(FIRST_TOKEN, FIRST_TOKEN + 300)],
    },
    "translation-pair": {"kind": "translation-pair"},
    "translation-pair packing": {"kind": "translation-pair", "packing": True},
    "dialogue": {"kind": "dialogue", "fake": 0.5},
    "sentence-groups": {"kind": "sentence-groups", "sentences": 3},
    "sentence-groups copies": {"kind": "sentence-groups", "sentences": 1, "copies": 2},
    "document-crops": {"kind": "document-crops", "part": 12, "least": 2},
    "half-reversed pairs": {"kind": "half-reversed", "of": "segment-pair"},
    "half-reversed sentences": {"kind": "half-reversed", "of": "full-sentences"},
    "mixture": {
        "kind": "mixture",
        "alpha": 0.5,
        "parts": {"text": {"kind": "doc-sentences"}, "pairs": {"kind": "translation-pair"}},
    },
}
MAY_HAVE_NO_SEQUENCES = (
    *("packed", "contiguous", "contiguous-pair", "connected-pair", "translation-pair"),
    *("dialogue", "mixture", "sentence-groups", "document-crops"),
)
LONG = [[[1, 2, 3, 1], [2, 2]], [[3]], [[1] * 30, [4, 4, 2]], [[2, 1]] * 4, [[3, 2]], [[1, 1]]]


def fields(batch):
    token_info = batch.token_info
    arrays = [batch.token_ids, batch.is_special, batch.relation]
    return [
        *arrays,
        token_info.position_ids,
        token_info.segment_ids,
        token_info.document_ids,
        token_info.word_ids,
        token_info.sentence_ids,
        token_info.language_ids,
        token_info.connective_ids,
    ]


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def input_format(request):
    return InputFormat.parse({**request.param, "length": LENGTH})


def test_every_kind_is_tested():
    """Item histories are not text: see test_histories."""
    tested_kinds = {settings["kind"] for settings in KINDS.values()}
    assert {*tested_kinds, "item-history"} == set(InputFormat.kinds())


def test_sequences_do_not_depend_on_their_batch(input_format):
    source, _ = plan_text(input_format, LONG)
    index, epoch = np.array([2, 0, 1]), np.array([7, 0, 3])
    full = fields(source.sequences(index, epoch))
    for i in range(3):
        single = fields(source.sequences(index[i : i + 1], int(epoch[i])))
        for one, many in zip(single, full, strict=True):
            assert (one is None) == (many is None)
            if one is not None:
                np.testing.assert_array_equal(one[0], many[i])


def test_plan_depends_on_the_seed_alone(input_format):
    first, again = plan_text(input_format, LONG)[0], plan_text(input_format, LONG)[0]
    np.testing.assert_array_equal(
        all_sequences(first, 5).token_ids, all_sequences(again, 5).token_ids
    )


@given(text=documents)
def test_sequences_are_well_formed(text):
    for settings in KINDS.values():
        try:
            source, split = plan_text(InputFormat.parse({**settings, "length": LENGTH}), text)
        except UserError:
            assert settings["kind"] in MAY_HAVE_NO_SEQUENCES
            continue
        batch = all_sequences(source, epoch=1)
        token_info = batch.token_info
        assert batch.token_ids.shape == (source.num_sequences, LENGTH)
        np.testing.assert_array_equal(batch.is_special, batch.token_ids < FIRST_TOKEN)
        np.testing.assert_array_equal(batch.is_real, batch.token_ids != PAD)
        # Padding is on the right, after an end token.
        num_real = batch.is_real.sum(axis=1)
        np.testing.assert_array_equal(batch.is_real, np.arange(LENGTH) < num_real[:, None])
        if settings["kind"] == "contiguous-pair":
            assert (batch.token_ids[:, -2:] == (SEP, CLS)).all()
        elif settings["kind"] != "contiguous":
            assert (batch.token_ids[:, 0] == CLS).all()
            assert (batch.token_ids[np.arange(source.num_sequences), num_real - 1] == SEP).all()
        for array in (token_info.word_ids, token_info.sentence_ids):
            np.testing.assert_array_equal(array == -1, batch.is_special)
            for indices in array:
                word_ids = indices[indices >= 0]
                assert sorted(set(word_ids)) == list(range(len(set(word_ids))))
                assert (np.diff(word_ids) >= 0).all()
        # Text is in the language of its document.
        languages = split.language_ids[split.document_of(batch.token_ids[~batch.is_special])]
        np.testing.assert_array_equal(token_info.language_ids[~batch.is_special], languages)
        # Tokens of one word share an index; neighbours of different words do not.
        word_numbers = split.word_of(batch.token_ids)
        text_pair = ~batch.is_special[:, 1:] & ~batch.is_special[:, :-1]
        np.testing.assert_array_equal(
            (token_info.word_ids[:, 1:] == token_info.word_ids[:, :-1])[text_pair],
            (word_numbers[:, 1:] == word_numbers[:, :-1])[text_pair],
        )
        for array in fields(batch)[3:]:
            assert array is None or array.dtype == np.int32


@given(text=documents)
def test_contiguous_sequences_are_the_text(text):
    try:
        source, split = plan_text(InputFormat.parse({"kind": "contiguous", "length": LENGTH}), text)
    except UserError:
        return
    stream: list[int] = []
    for start, stop in zip(split.document_starts[:-1], split.document_starts[1:], strict=True):
        stream += [*split.gather(np.array([start]), int(stop - start))[0][0].tolist(), SEP]
    read = all_sequences(source, epoch=3).token_ids.ravel().tolist()
    assert read == stream[: len(read)]
    assert len(stream) - len(read) < 2 * LENGTH
    backward, _ = plan_text(
        InputFormat.parse({"kind": "contiguous", "length": LENGTH, "backward": True}), text
    )
    assert all_sequences(backward, epoch=3).token_ids[::-1].ravel().tolist() == read


@given(text=documents)
def test_isolated_documents_match_the_split(text):
    for settings in (KINDS["packed"], KINDS["doc-sentences"], KINDS["doc-sentences packing"]):
        try:
            source, split = plan_text(InputFormat.parse({**settings, "length": LENGTH}), text)
        except UserError:
            continue
        for epoch in (0, 1):
            batch = all_sequences(source, epoch)
            document, position = batch.token_info.document_ids, batch.token_info.position_ids
            for i in range(source.num_sequences):
                for inner in range(document[i].max() + 1):
                    positions = np.flatnonzero(document[i] == inner)
                    np.testing.assert_array_equal(
                        positions, positions[0] + np.arange(len(positions))
                    )
                    np.testing.assert_array_equal(position[i, positions], np.arange(len(positions)))
                    token_ids = batch.token_ids[i, positions]
                    assert token_ids[0] == CLS
                    assert CLS not in token_ids[1:]
                    assert len(set(split.document_of(token_ids[token_ids >= FIRST_TOKEN]))) <= 1
                of_text = split.document_of(batch.token_ids[i][~batch.is_special[i]])
                inner_of_text = document[i][~batch.is_special[i]]
                assert len(set(of_text)) == len(set(inner_of_text))
