"""Layout of text spans as sequences."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bertwright.batches.formats import (
    Contiguous,
    ContiguousPair,
    DocSentences,
    FullSentences,
    HalfReversed,
    InputFormat,
    Packed,
    SegmentPair,
    SentencePair,
    TranslationPair,
)
from bertwright.batches.formats.arrangement.layout import (
    SequenceLayout,
    gather_padded,
    language_ids_of,
)
from bertwright.batches.vocabulary import Vocabulary
from numbered_text import CLS, PAD, SEP, SPECIALS, NumberedSplit, all_sequences
from toy_recipes import SYSTEMS, published

# Two sentences of one document (tokens 100 to 104), then a document of three tokens (105 to 107).
SPLIT = NumberedSplit.of([[[1, 2], [1, 1]], [[3]]])


def lay_out(starts, counts, isolated, length=10, lead=0):
    layout = SequenceLayout(SPLIT, SPECIALS, length, isolated)
    return layout.lay_out(np.array(starts), np.array(counts), lead)


def test_isolated_documents_are_separated_by_end_and_start():
    batch = lay_out([2, 5], [5, 3], isolated=True)
    assert batch.token_ids.tolist() == [
        [CLS, 102, 103, 104, SEP, CLS, 105, 106, SEP, PAD],
        [CLS, 105, 106, 107, SEP, PAD, PAD, PAD, PAD, PAD],
    ]
    assert batch.token_info.document_ids.tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 1, -1],
        [0, 0, 0, 0, 0, -1, -1, -1, -1, -1],
    ]
    assert batch.token_info.position_ids.tolist() == [
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 0],
        [0, 1, 2, 3, 4, 0, 0, 0, 0, 0],
    ]
    assert batch.token_info.word_ids.tolist() == [
        [-1, 0, 1, 2, -1, -1, 3, 3, -1, -1],
        [-1, 0, 0, 0, -1, -1, -1, -1, -1, -1],
    ]
    assert batch.token_info.sentence_ids.tolist() == [
        [-1, 0, 1, 1, -1, -1, 2, 2, -1, -1],
        [-1, 0, 0, 0, -1, -1, -1, -1, -1, -1],
    ]
    assert batch.is_special.tolist() == (batch.token_info.word_ids < 0).tolist()


def test_joined_documents_are_separated_by_end():
    batch = lay_out([0], [8], isolated=False, length=12)
    assert batch.token_ids.tolist() == [
        [CLS, 100, 101, 102, 103, 104, SEP, 105, 106, 107, SEP, PAD]
    ]
    assert batch.token_info.document_ids.tolist() == [[0] * 11 + [-1]]
    assert batch.token_info.position_ids is None


def test_full_sequence_is_truncated_and_ends_with_end():
    batch = lay_out([3, 2, 1, 0], [8, 8, 8, 8], isolated=True, length=7)
    assert batch.token_ids.tolist() == [
        [CLS, 103, 104, SEP, CLS, 105, SEP],
        [CLS, 102, 103, 104, SEP, CLS, SEP],
        [CLS, 101, 102, 103, 104, SEP, SEP],
        [CLS, 100, 101, 102, 103, 104, SEP],
    ]
    assert batch.is_real.all()


def test_sequence_may_begin_within_separators():
    batch = lay_out([5, 5, 5], [3, 3, 3], isolated=True, length=7, lead=np.array([0, 1, 2]))
    assert batch.token_ids.tolist() == [
        [CLS, 105, 106, 107, SEP, PAD, PAD],
        [CLS, CLS, 105, 106, 107, SEP, PAD],
        [CLS, SEP, CLS, 105, 106, 107, SEP],
    ]
    assert batch.token_info.document_ids.tolist() == [
        [0, 0, 0, 0, 0, -1, -1],
        [0, 1, 1, 1, 1, 1, -1],
        [0, 0, 1, 1, 1, 1, 1],
    ]


def test_gathering_past_the_end_is_harmless():
    tokens, _ = gather_padded(SPLIT, np.array([0, 6]), 4)
    assert tokens[0].tolist() == [100, 101, 102, 103]
    assert tokens[1, :2].tolist() == [106, 107]
    assert gather_padded(SPLIT, np.array([0]), 20)[0].shape == (1, 20)


def test_the_end_of_a_split_has_the_language_of_its_last_document():
    split = SimpleNamespace(language_ids=np.array([4, 7]), num_documents=2)
    assert language_ids_of(split, np.array([0, 1, 2])).tolist() == [4, 7, 7]


def test_missing_and_reserved_ids_of_a_tokenizer_are_told_apart():
    ids = {"unused_ids": frozenset({7}), "reserved_ids": frozenset({9})}
    tokenizer = SimpleNamespace(vocab_size=12, special_tokens=SPECIALS, **ids)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert vocabulary.token_ids.tolist() == [*range(7), *range(8, 12)]
    assert vocabulary.is_reserved.nonzero()[0].tolist() == [9]
    assert {7, 9} & set(vocabulary.text_token_ids.tolist()) == {9}


def test_a_text_begins_behind_the_tokens_before_it():
    for system in SYSTEMS:
        input_format = published(system).assembly
        tokens = input_format.add_special_tokens([100, 101], SPECIALS)
        assert tokens.index(100) == input_format.text_start, system


@pytest.mark.parametrize(
    "input_format",
    [
        *(Packed(length=14, isolated=isolated) for isolated in (False, True)),
        *(Contiguous(length=14, isolated=isolated) for isolated in (False, True)),
        FullSentences(length=14),
        DocSentences(length=14, packing=True),
        SentencePair(length=14),
        SegmentPair(length=14),
        TranslationPair(length=14, packing=True),
        ContiguousPair(length=14),
        HalfReversed(length=14, of=FullSentences()),
    ],
    ids=str,
)
def test_one_token_may_begin_and_end_texts(input_format: InputFormat) -> None:
    split = NumberedSplit.of([[[1] * 3, [2, 1]], [[1, 1]]] * 8)
    both = replace(SPECIALS, start=SEP)
    one, other = (
        all_sequences(input_format.plan(cast(Any, split), specials, 0))
        for specials in (SPECIALS, both)
    )
    expected = np.where(one.token_ids == CLS, SEP, one.token_ids)
    np.testing.assert_array_equal(other.token_ids, expected)
    np.testing.assert_array_equal(other.is_special, one.is_special)
    for name, values in one.token_info.arrays().items():
        np.testing.assert_array_equal(other.token_info.arrays()[name], values, name)
