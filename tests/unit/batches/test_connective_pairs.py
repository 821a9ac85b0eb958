"""Pairs of sentences without the connective that joined them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from bertwright.batches.formats import ConnectedPair
from bertwright.batches.token_info import RELATIONS, SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.data.preparation import temporary_dataset
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.objectives.discourse_relation import DiscourseRelation
from bertwright.objectives.objective import MaskingContext
from numbered_text import CLS, FIRST_TOKEN, PAD, SEP, SPECIALS, NumberedSplit

CONNECTIVES = ("but", "however,", "as", "as a result,", "never seen,")
DOCUMENTS = [
    "But the first has none. However, the rain fell. It fell, however, slowly. But it fell.",
    "The road was wet. As a result, nobody came. As he said this he left. Butter was cheap.",
    "He was late. However he came, nobody saw him. however, it rained. But",
]
JOINED = [
    ("But the first has none.", "however,", "the rain fell."),
    ("It fell, however, slowly.", "but", "it fell."),
    ("The road was wet.", "as a result,", "nobody came."),
    ("As a result, nobody came.", "as", "he said this he left."),
]
"""The expected pairs: not within a sentence or word, not without a following text."""


@pytest.fixture(scope="module", params=["wordpiece", "byte-bpe", "unigram"])
def data(request: pytest.FixtureRequest) -> Iterator[Dataset]:
    config = TokenizerConfig.parse({"kind": request.param, "vocab_size": 400, "lowercase": False})
    tokenizer = train_tokenizer(DOCUMENTS * 9, config)
    # A word of several tokens begins with a connective.
    documents = [text.replace(" Butter was cheap.", " Buts fell.") for text in DOCUMENTS]
    with temporary_dataset(documents, tokenizer) as dataset:
        yield dataset


@pytest.mark.parametrize("block_size", [1, 2, 1000])
def test_connectives_are_detected_with_every_tokenizer(
    data: Dataset, block_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertwright.batches.formats.connective_pairs._BLOCK_SIZE", block_size)
    split, tokenizer = data.split("train"), data.tokenizer
    source = ConnectedPair(length=64, connectives=CONNECTIVES).plan(
        split, tokenizer.special_tokens, 0
    )
    batch = source.sequences(np.arange(source.num_sequences), 0)
    assert batch.relation is not None
    assert (batch.relation == RELATIONS.index("next")).all()
    segment_ids, connective_ids = batch.token_info.segment_ids, batch.token_info.connective_ids
    assert segment_ids is not None
    assert connective_ids is not None
    pairs = [
        (
            decode_text(data, tokens[~special & (segments == 0)]),
            CONNECTIVES[connectives.max()],
            decode_text(data, tokens[~special & (segments == 1)]),
        )
        for tokens, special, segments, connectives in zip(
            batch.token_ids, batch.is_special, segment_ids, connective_ids, strict=True
        )
    ]
    expected = [(remove_spaces(a), name, remove_spaces(b)) for a, name, b in JOINED]
    assert sorted(pairs) == sorted(expected)


def decode_text(data: Dataset, tokens: Any) -> str:
    return remove_spaces(data.tokenizer.decode(tokens.tolist()))


def remove_spaces(text: str) -> str:
    return "".join(text.split())


def test_connective_is_removed_and_labelled() -> None:
    text = NumberedSplit.of([[[1] * 3, [1] * 4], [[1] * 2, [1] * 3, [1, 2]]])
    p = FIRST_TOKEN
    names = (f"{p + 99}", f"{p + 9} {p + 10}", f"{p + 3}", f"{p + 12}")
    source = ConnectedPair(length=12, connectives=names).plan(cast(Any, text), SPECIALS, 0)
    batch = source.sequences(np.arange(source.num_sequences), 0)
    assert [token_ids[token_ids != PAD].tolist() for token_ids in batch.token_ids] == [
        [CLS, p + 7, p + 8, SEP, p + 11, SEP],
        [CLS, p, p + 1, p + 2, SEP, p + 4, p + 5, p + 6, SEP],
        [CLS, p + 9, p + 10, p + 11, SEP, p + 13, p + 14, SEP],
    ]
    connective_ids = batch.token_info.connective_ids
    assert connective_ids is not None
    expected = [(4, 1), (5, 2), (5, 3)]
    for token_ids, (position, number) in zip(connective_ids, expected, strict=True):
        assert token_ids[position] == number
        assert (np.delete(token_ids, position) == -1).all()
    _, targets = DiscourseRelation(connectives=names).make_targets(batch, masking_context())
    assert targets.positions.tolist() == [0, 12, 24]
    assert targets.labels.tolist() == [1, 2, 3]
    assert targets.weights.tolist() == [1.0] * 3


def masking_context() -> MaskingContext:
    return MaskingContext(CounterRng(0), Vocabulary(40, SPECIALS))


def test_long_pair_keeps_the_joint() -> None:
    text = NumberedSplit.of([[[1] * 20, [1] * 20]])
    p = FIRST_TOKEN
    pair = ConnectedPair(length=13, connectives=(f"{p + 20}", "1"))
    batch = pair.plan(cast(Any, text), SPECIALS, 0).sequences(np.arange(1), 0)
    a, b = list(range(p + 15, p + 20)), list(range(p + 21, p + 26))
    assert batch.token_ids[0].tolist() == [CLS, *a, SEP, *b, SEP]


def test_connectives_and_their_pairs_alternate() -> None:
    """Eleven pairs of one connective, one of another: half of the sequences each."""
    text = " ".join(
        ["A came.", *(f"But {name} came." for name in "bcdefghijkl"), "However, m came."]
    )
    tokenizer = train_tokenizer([text], TokenizerConfig.parse({"kind": "words", "vocab_size": 40}))
    pair = ConnectedPair(length=16, connectives=("however,", "indeed,", "but"))
    with temporary_dataset([text], tokenizer) as data:
        source = pair.plan(data.split("train"), tokenizer.special_tokens, 0)
        batch = [source.sequences(np.arange(source.num_sequences), epoch) for epoch in range(11)]
    assert source.num_sequences == 12
    counts = Counter(tuple(token_ids.tolist()) for batch in batch for token_ids in batch.token_ids)
    assert sorted(counts.values()) == [6] * 11 + [66]


def test_text_without_connectives_is_an_error() -> None:
    text = NumberedSplit.of([[[1] * 3, [1] * 3]])
    with pytest.raises(UserError, match="holds no sentence that begins with a connective, such as"):
        ConnectedPair(length=16, connectives=("7", "8")).plan(cast(Any, text), SPECIALS, 0)


def test_other_input_formats_are_an_error() -> None:
    batch = SequenceBatch(np.zeros((1, 8), np.int32), TokenInfoArrays(), np.zeros((1, 8), np.bool_))
    with pytest.raises(UserError, match="needs the input format connected-pair"):
        DiscourseRelation().make_targets(batch, masking_context())


def test_connectives_must_be_distinct() -> None:
    for wrong, why in ((("but",), "at least 2"), (("but", "But "), "twice"), (("a", " "), "empty")):
        with pytest.raises(ValueError, match=why):
            ConnectedPair(connectives=wrong)
