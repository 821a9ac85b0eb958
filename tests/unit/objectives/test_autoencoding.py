"""A text is read, and then repeated."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from bertwright.batches.formats import InputFormat
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.objectives.autoencoding import Autoencoding, repeat_text
from bertwright.recipes import Recipe
from bertwright.testing.toy import toy_sequences
from numbered_text import SPECIALS, NumberedSplit, documents
from toy_recipes import toy

VOCABULARY = Vocabulary(1000, SPECIALS)


@given(
    documents,
    some.integers(8, 25),
    some.sampled_from(["doc-sentences", "full-sentences"]),
    some.booleans(),
)
def test_first_text_is_repeated(text: Any, length: int, kind: str, has_documents: bool) -> None:
    source = InputFormat.parse({"kind": kind, "length": length}).plan(
        NumberedSplit.of(text), SPECIALS, 0
    )
    batch = source.sequences(np.arange(source.num_sequences), 0)
    if not has_documents:
        batch = replace(batch, token_info=replace(batch.token_info, document_ids=None))
    repeated, targets = repeat_text(batch, False, VOCABULARY)
    reversed_batch, reversed_targets = repeat_text(batch, True, VOCABULARY)
    assert (targets.positions == reversed_targets.positions).all()
    for i, token_ids in enumerate(repeated.token_ids):
        document_ids = batch.token_info.document_ids
        size = (
            length if document_ids is None else int((document_ids[i] == document_ids[i, 0]).sum())
        )
        size = min(size, length // 2)
        first = batch.token_ids[i, :size].tolist()
        padding = [SPECIALS.pad] * (length - 2 * size)
        assert token_ids.tolist() == [*first, *first, *padding]
        assert reversed_batch.token_ids[i].tolist() == [*reversed(first), *first, *padding]
        assert repeated.is_real[i].tolist() == [True] * 2 * size + [False] * len(padding)
        is_scored = (targets.positions // length == i) & (targets.weights > 0)
        assert (targets.positions[is_scored] % length).tolist() == list(range(size, 2 * size - 1))
        assert (
            targets.labels[is_scored].tolist()
            == reversed_targets.labels[is_scored].tolist()
            == first[1:]
        )


def test_special_tokens_that_a_text_spells_are_not_predicted() -> None:
    text = [[[1] * 12]]
    plan = InputFormat.parse({"kind": "full-sentences", "length": 26})
    batch = plan.plan(NumberedSplit.of(text), SPECIALS, 0).sequences(np.arange(1), 0)
    spelled = np.zeros_like(batch.is_special)
    spelled[0, 5] = True
    first = batch.token_ids[0, 1:13].tolist()
    for reverse in (False, True):
        _, targets = repeat_text(
            replace(batch, is_special=batch.is_special | spelled), reverse, VOCABULARY
        )
        labels = targets.labels[targets.weights > 0].tolist()
        assert labels == [token for n, token in enumerate(first, 1) if n != 5]


def test_the_cost_counts_the_targets_of_a_full_sequence() -> None:
    batch = toy_sequences(toy("lstm-autoencoder"))
    length = batch.token_ids.shape[1]
    _, targets = repeat_text(batch, False, VOCABULARY)
    num_targets = np.bincount(targets.positions[targets.weights > 0] // length)
    assert Autoencoding().targets_per_token(length) * length == num_targets.max()


def test_autoencoding_excludes_other_objectives() -> None:
    with pytest.raises(UserError, match="autoencoding changes the input"):
        Recipe.load("lstm-autoencoder-tiny", "objectives.causal={}")
