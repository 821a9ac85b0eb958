"""Pairs of translations, and splits by language."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given

from bertwright.batches.formats import TranslationPair
from bertwright.core.errors import UserError
from bertwright.data.shards.subset import SplitSubset, split_by_language, split_by_language_pair
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START
from numbered_text import CLS, PAD, SEP, NumberedSplit, all_sequences, documents, plan_text

# Sides of 2, 3; 2, 1; 30, 2 tokens, in words of one and two.
TEXT = [[[2]], [[1, 2]], [[1, 1]], [[1]], [[1] * 30], [[1, 1]]]


def translation_batch(**settings: Any):
    source, _ = plan_text(TranslationPair(length=16, **settings), TEXT)
    return all_sequences(source)


def test_positions_restart_on_the_second_side() -> None:
    batch = translation_batch()
    token_info = batch.token_info
    first = [CLS, 100, 101, SEP, CLS, 102, 103, 104, SEP, *[PAD] * 7]
    assert batch.token_ids[0].tolist() == first
    assert token_info.position_ids[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, *[0] * 7]
    assert token_info.document_ids[0].tolist() == [*[0] * 9, *[-1] * 7]
    assert token_info.language_ids[0, :9].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert token_info.word_ids[0].tolist() == [-1, 0, 0, -1, -1, 1, 2, 2, -1, *[-1] * 7]
    assert token_info.sentence_ids[0].tolist() == [-1, 0, 0, -1, -1, 1, 1, 1, -1, *[-1] * 7]
    assert token_info.segment_ids is None
    # Only the long side loses its last tokens.
    assert batch.token_ids[2].tolist() == [CLS, *range(108, 118), SEP, CLS, 138, 139, SEP]


def test_positions_may_continue() -> None:
    assert translation_batch(restart=False).token_info.position_ids[0, :9].tolist() == list(
        range(9)
    )


def test_packed_pairs_are_isolated() -> None:
    batch = translation_batch(packing=True)
    assert len(batch.token_ids) == 2
    pair = [CLS, 105, 106, SEP, CLS, 107, SEP]
    assert batch.token_ids[0, 9:].tolist() == pair
    assert batch.token_info.document_ids[0].tolist() == [*[0] * 9, *[1] * 7]
    assert batch.token_info.position_ids[0, 9:].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert batch.token_info.word_ids[0, 9:].tolist() == [-1, 3, 4, -1, -1, 5, -1]


def test_pairs_are_packed_while_both_sides_and_delimiters_fit() -> None:
    # Pairs of 3 + 5, 2 + 2, 6 + 2 and 1 + 7 tokens, and four delimiters each, in sequences of 24.
    sides = [3, 5, 2, 2, 6, 2, 1, 7]
    source, _ = plan_text(TranslationPair(length=24, packing=True), [[[1] * n] for n in sides])
    batch = all_sequences(source)
    sizes = [a + b + 4 for a, b in zip(sides[::2], sides[1::2], strict=True)]
    assert batch.is_real.sum(1).tolist() == [sizes[0] + sizes[1], sizes[2] + sizes[3]]
    assert [(ids == CLS).sum() for ids in batch.token_ids] == [4, 4]


def test_missing_translations_are_an_error() -> None:
    with pytest.raises(UserError, match="holds no translations"):
        plan_text(TranslationPair(length=16), [[[1, 2]]])


@given(text=documents)
def test_language_split_equals_its_documents(text: Any) -> None:
    split_all = NumberedSplit.of(text)
    for split in split_by_language(cast(Any, split_all)):
        number = split_all.language_names.index(split.name)
        documents_of_language = np.flatnonzero(split_all.language_ids == number)
        bounds = zip(
            split_all.document_starts[documents_of_language],
            split_all.document_starts[documents_of_language + 1],
            strict=True,
        )
        expected = np.concatenate([100 + np.arange(start, stop) for start, stop in bounds])
        tokens, boundaries = (
            values[:, 0] for values in split.gather(np.arange(split.num_tokens), 1)
        )
        assert tokens.tolist() == expected.tolist()
        starts = split.document_starts[:-1], split.sentence_starts[:-1]
        for expected_starts, flag in zip(starts, (DOCUMENT_START, SENTENCE_START), strict=True):
            assert np.flatnonzero(boundaries & flag).tolist() == expected_starts.tolist()
        length = min(3, split.num_tokens)
        positions = np.arange(split.num_tokens - length + 1)[:, None] + np.arange(length)
        assert split.gather(positions[:, 0], length)[0].tolist() == expected[positions].tolist()
        assert (split.language_ids == number).all()
        assert not len(split.translations)


@given(text=documents)
def test_translations_are_split_by_language_pair(text: Any) -> None:
    split_all = cast(Any, NumberedSplit.of(text))
    values: list[int] = []
    for split in split_by_language_pair(split_all):
        assert split.translations.tolist() == list(range(1, split.num_documents, 2))
        names = [split.language_names[number] for number in split.language_ids]
        assert {f"{a}-{b}" for a, b in zip(names[::2], names[1::2], strict=True)} == {split.name}
        first = split.gather(split.document_starts[:-1], 1)[0][:, 0]
        values += split_all.document_of(first)[1::2].tolist()
    assert sorted(values) == split_all.translations.tolist()


def test_subset_source_ranges() -> None:
    split_all = NumberedSplit.of(TEXT)
    split = SplitSubset(cast(Any, split_all), np.array([1, 2, 5]), "some")
    assert list(split._source_ranges(1, 7)) == [(3, 7), (38, 40)]
