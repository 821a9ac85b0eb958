"""Sequences tokenized with two vocabularies are the same text."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.batches.formats import InputFormat
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.compression.distillation.vocabulary_mixing import VocabularyMixer
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.data.tokenization.tokenizer import SpecialTokens
from toy_recipes import SPECIALS, VOCABULARY, ToyText

FIRST = 1000
"""First token id of the first vocabulary; a word's id there is the sum of its second ones."""
KNOWN = SpecialTokens(pad=9, unknown=8, start=7, end=6, mask=5)

FORMATS = [
    {"kind": "packed", "length": 24},
    {"kind": "packed", "length": 24, "isolated": False},
    {"kind": "full-sentences", "length": 24},
    {"kind": "segment-pair", "length": 24},
]


def format_batch(config: dict[str, Any], number: int = 6) -> SequenceBatch:
    input_format = InputFormat.parse(config)
    source = input_format.plan(cast(Any, ToyText()), SPECIALS, 0)
    index = np.arange(min(number, source.num_sequences))
    return source.sequences(index, np.zeros_like(index))


def retokenize(word: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return one token for a word, or None if its sum is even."""
    return (100 + sum(word),) if sum(word) % 2 else None


def mix(
    batch: SequenceBatch, fraction: float, retokenizer: Any = retokenize, seed: int = 0
) -> SequenceBatch:
    mixer = VocabularyMixer(fraction, retokenizer, FIRST, KNOWN, SPECIALS)
    return mixer(batch, CounterRng(seed, 0, np.arange(len(batch.token_ids))))


def words_in(batch: SequenceBatch, i: int) -> list[tuple[int, ...]]:
    """Return the token ids of every word and special token, in order."""
    result: list[list[int]] = []
    word, previous = batch.token_info.word_ids[i], None
    for position in np.flatnonzero(batch.is_real[i]):
        if word[position] < 0 or word[position] != previous:
            result.append([])
        result[-1].append(int(batch.token_ids[i, position]))
        previous = word[position]
    return [tuple(word) for word in result]


@pytest.mark.parametrize("config", FORMATS, ids=lambda config: config["kind"])
def test_fraction_one_keeps_all_words(config: dict[str, Any]) -> None:
    batch = format_batch(config)
    result = mix(batch, 1.0)
    info = ~batch.is_special
    assert np.array_equal(result.token_ids[info], batch.token_ids[info] + FIRST)
    renamed = {0: 9, 1: 8, 2: 7, 3: 6, 4: 5}
    assert result.token_ids[~info].tolist() == [renamed[token] for token in batch.token_ids[~info]]
    assert np.array_equal(result.is_special, batch.is_special)
    for name, values in batch.token_info.arrays().items():
        values, real = getattr(result.token_info, name), batch.is_real
        assert np.array_equal(values[real], values[real]), name
    assert np.array_equal(result.is_real, batch.is_real)


@pytest.mark.parametrize("config", FORMATS, ids=lambda config: config["kind"])
@given(fraction=st.floats(0, 1), seed=st.integers(0, 99))
def test_words_come_from_either_vocabulary(
    config: dict[str, Any], fraction: float, seed: int
) -> None:
    batch = format_batch(config)
    result = mix(batch, fraction, seed=seed)
    mixed_info, info = result.token_info, batch.token_info
    for i in range(len(batch.token_ids)):
        words, mixed_words = words_in(batch, i), words_in(result, i)
        assert len(words) == len(mixed_words)
        for first, second in zip(words, mixed_words, strict=True):
            replaced = retokenize(first)
            stays = tuple(FIRST + token for token in first)
            special = (9 - first[0],) if first[0] < 5 else None
            assert second in (replaced, stays, special)
            assert replaced is not None or second != replaced
        is_real, was_real = result.is_real[i], batch.is_real[i]
        assert not is_real[int(is_real.sum()) :].any()
        for name in ("segment_ids", "document_ids", "sentence_ids"):
            values, original = getattr(mixed_info, name), getattr(info, name)
            if original is not None:
                assert set(values[i][is_real]) <= set(original[i][was_real])
        if mixed_info.position_ids is not None:
            for document in set(mixed_info.document_ids[i][is_real]):
                inside = mixed_info.position_ids[i][mixed_info.document_ids[i] == document]
                assert inside.tolist() == list(range(len(inside)))


def test_fraction_counts_words() -> None:
    batch = format_batch({"kind": "packed", "length": 24}, 40)
    result = mix(batch, 0.3, lambda word: (1,))
    info = ~result.is_special
    words = sum(int(values.max()) + 1 for values in batch.token_info.word_ids)
    replaced = int((result.token_ids[info] == 1).sum())
    assert abs(1 - replaced / words - 0.3) < 0.05


def test_overflow_is_truncated() -> None:
    batch = format_batch({"kind": "packed", "length": 24})
    result = mix(batch, 0.0, lambda word: (1, 2, 3, 4, 5))
    assert result.token_ids.shape == batch.token_ids.shape
    assert result.is_real.all()


def test_a_sequence_may_begin_with_a_word() -> None:
    """Only padding is added to the special tokens, and it is no boundary."""
    word_ids = np.array([[0, 0, 1, -1]], np.int32)
    special = np.array([[False, False, False, True]])
    token_ids, info = np.array([[11, 12, 13, 3]], np.int32), TokenInfoArrays(word_ids=word_ids)
    batch = SequenceBatch(token_ids, info, special, is_truncation_boundary=~special)
    result = mix(batch, 0.0, lambda word: (sum(word),))
    assert result.token_ids.tolist() == [[23, 13, 6, 9]]
    assert result.is_special.tolist() == [[False, False, True, True]]
    assert result.is_truncation_boundary is not None
    assert result.is_truncation_boundary.tolist() == [[True, True, False, False]]


def test_sequences_are_mixed_independently() -> None:
    batch = format_batch({"kind": "packed", "length": 24})
    full = mix(batch, 0.5)
    part = SequenceBatch(
        batch.token_ids[2:],
        TokenInfoArrays(word_ids=batch.token_info.word_ids[2:]),
        batch.is_special[2:],
    )
    rng = CounterRng(0, 0, np.arange(2, len(batch.token_ids)))
    alone = VocabularyMixer(0.5, retokenize, FIRST, KNOWN, SPECIALS)(part, rng)
    assert np.array_equal(alone.token_ids, full.token_ids[2:])


def test_sequences_without_words_are_an_error() -> None:
    token_ids = np.full((1, 8), VOCABULARY - 1, np.int32)
    with pytest.raises(UserError, match="word boundaries"):
        mix(SequenceBatch(token_ids, TokenInfoArrays(), np.zeros((1, 8), np.bool_)), 0.5)
