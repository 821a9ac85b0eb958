"""Sequences of whole sentences."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertwright.batches.formats import DocSentences, FullSentences
from numbered_text import (
    CLS,
    FIRST_TOKEN,
    PAD,
    SEP,
    SPECIALS,
    NumberedSplit,
    all_sequences,
    documents,
    plan_text,
    text_tokens,
)

LENGTH = 10
# Documents of sentences: 3 + 4 tokens; 2; 3.
TEXT = [[[3], [4]], [[2]], [[1, 2]]]


def test_full_sentences_cross_documents():
    source, _ = plan_text(FullSentences(length=LENGTH), TEXT)
    assert all_sequences(source).token_ids.tolist() == [
        [CLS, 100, 101, 102, 103, 104, 105, 106, SEP, PAD],
        [CLS, 107, 108, SEP, 109, 110, 111, SEP, PAD, PAD],
    ]


def test_doc_sentences_end_with_their_document():
    source, _ = plan_text(DocSentences(length=LENGTH), TEXT)
    assert all_sequences(source).token_ids.tolist() == [
        [CLS, 100, 101, 102, 103, 104, 105, 106, SEP, PAD],
        [CLS, 107, 108, SEP, PAD, PAD, PAD, PAD, PAD, PAD],
        [CLS, 109, 110, 111, SEP, PAD, PAD, PAD, PAD, PAD],
    ]


def test_packing_joins_short_texts():
    source, _ = plan_text(DocSentences(length=LENGTH, packing=True), TEXT)
    assert all_sequences(source).token_ids.tolist() == [
        [CLS, 100, 101, 102, 103, 104, 105, 106, SEP, PAD],
        [CLS, 107, 108, SEP, CLS, 109, 110, 111, SEP, PAD],
    ]


@given(text=documents, every=st.integers(1, 4))
def test_every_token_of_a_capitalised_word_is_marked(text, every):
    split = NumberedSplit.of(text)
    for capitals in (split.word_starts[:-1:every], split.word_starts[:0]):
        split.capitals = capitals
        batch = all_sequences(FullSentences(length=LENGTH).plan(split, SPECIALS, 0))
        is_text = batch.token_ids >= FIRST_TOKEN
        words = split.word_of(batch.token_ids[is_text])
        is_capitalised = batch.token_info.is_capitalised[is_text]
        assert (is_capitalised == np.isin(split.word_starts[words], capitals)).all()
        assert not batch.token_info.is_capitalised[~is_text].any()


@given(text=documents)
def test_tokens_are_used_once(text):
    for input_format in (
        FullSentences(length=LENGTH),
        DocSentences(length=LENGTH),
        DocSentences(length=LENGTH, packing=True),
    ):
        source, split = plan_text(input_format, text)
        used = np.concatenate(text_tokens(all_sequences(source))) - FIRST_TOKEN
        np.testing.assert_array_equal(used, np.arange(split.num_tokens))


@given(text=documents)
def test_only_long_sentences_are_split(text):
    source, split = plan_text(FullSentences(length=LENGTH), text)
    for tokens in text_tokens(all_sequences(source))[1:]:
        start = tokens[0] - FIRST_TOKEN
        sentence = split.sentence_starts[split.sentence_starts <= start][-1]
        assert (start - sentence) % (LENGTH - 2) == 0


@given(text=documents)
def test_sequences_are_filled_greedily(text):
    source, split = plan_text(FullSentences(length=LENGTH), text)
    batch = all_sequences(source)
    for i, next_tokens in enumerate(text_tokens(batch)[1:]):
        start = next_tokens[0] - FIRST_TOKEN
        later = split.sentence_starts[split.sentence_starts > start]
        sentence = min(LENGTH - 2, later[0] - start)
        num_separators = int(start in split.document_starts)
        assert batch.is_real[i].sum() + num_separators + sentence > LENGTH
