"""Predicted ends and starts are those of texts, not of sequences."""

import numpy as np
import pytest
from hypothesis import given

from bertwright.batches.formats import (
    DocSentences,
    FullSentences,
    HalfReversed,
    InputFormat,
    Mixture,
    Packed,
)
from bertwright.batches.targets import (
    Targets,
    all_transition_targets,
    next_token_targets,
    previous_token_targets,
)
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from numbered_text import CLS, FIRST_TOKEN, SEP, all_sequences, documents, plan_text

LENGTH = 12
FRAMED = [
    Packed(length=LENGTH),
    Packed(length=LENGTH, isolated=False),
    FullSentences(length=LENGTH),
    DocSentences(length=LENGTH),
    DocSentences(length=LENGTH, packing=True),
]
REVERSED = [HalfReversed(length=LENGTH, of=of) for of in FRAMED if of.isolation_setting is None]
TEXT = [[[1 + (d + s + w) % 3 for w in range(4)] for s in range(d % 7 + 1)] for d in range(20)]


def neighbours(batch: SequenceBatch, targets: Targets, shift: int, label: int) -> list[int]:
    """Return the stream positions of the tokens that predict a label, ``shift`` positions away.

    Special tokens have negative ones.
    """
    positions = targets.positions[(targets.weights > 0) & (targets.labels == label)]
    assert (batch.token_ids.ravel()[positions + shift] == label).all()
    return (batch.token_ids.ravel()[positions] - FIRST_TOKEN).tolist()


def ends(batch: SequenceBatch) -> list[int]:
    return neighbours(batch, next_token_targets(batch), 1, SEP)


def starts(batch: SequenceBatch) -> list[int]:
    return neighbours(batch, previous_token_targets(batch), -1, CLS)


@pytest.mark.parametrize("input_format", FRAMED, ids=repr)
@given(text=documents)
def test_predicted_ends_follow_last_tokens_of_documents(input_format: InputFormat, text) -> None:
    try:
        source, split = plan_text(input_format, text)
    except UserError:
        return
    first, last = split.document_starts[:-1].tolist(), (split.document_starts[1:] - 1).tolist()
    for epoch in range(3):
        batch = all_sequences(source, epoch)
        for predicted, expected in ((ends(batch), last), (starts(batch), first)):
            assert set(predicted) <= set(expected)
            assert len(predicted) == len(set(predicted))


@pytest.mark.parametrize("input_format", FRAMED, ids=repr)
def test_most_documents_have_end_and_start_targets(input_format: InputFormat) -> None:
    source, split = plan_text(input_format, TEXT)
    batch = all_sequences(source)
    assert len(ends(batch)) >= split.num_documents - 2 * (input_format.kind == "packed")
    if input_format.isolation_setting or input_format.kind == "doc-sentences":
        assert len(starts(batch)) >= split.num_documents - 2 * (input_format.kind == "packed")
    else:
        assert starts(batch)


@pytest.mark.parametrize("input_format", REVERSED, ids=lambda of: of.of.kind)
@given(text=documents)
def test_reversed_text_ends_at_its_start(input_format: InputFormat, text) -> None:
    try:
        source, split = plan_text(input_format, text)
    except UserError:
        return
    first, last = split.document_starts[:-1].tolist(), (split.document_starts[1:] - 1).tolist()
    half = np.arange(source.num_sequences // 2)
    forward, backward = source.sequences(half, 0), source.sequences(half + len(half), 0)
    for batch, end_tokens, start_tokens in ((forward, last, first), (backward, first, last)):
        for predicted, expected in ((ends(batch), end_tokens), (starts(batch), start_tokens)):
            assert set(predicted) <= set(expected)
            assert len(predicted) == len(set(predicted))


@pytest.mark.parametrize("input_format", REVERSED, ids=lambda of: of.of.kind)
def test_some_reversed_texts_have_ends(input_format: InputFormat) -> None:
    source, _ = plan_text(input_format, TEXT)
    backward = source.sequences(np.arange(source.num_sequences // 2, source.num_sequences), 0)
    assert ends(backward)
    assert starts(backward)


def test_mixture_keeps_truncation_boundaries() -> None:
    parts: dict[str, InputFormat] = {of.kind: of for of in (Packed(), DocSentences())}
    source, _ = plan_text(Mixture(length=LENGTH, parts=parts), TEXT)
    merged = all_sequences(source)
    separate = [
        all_sequences(plan_text(Mixture(length=LENGTH, parts={n: p}), TEXT)[0])
        for n, p in parts.items()
    ]
    assert sorted(ends(merged)) == sorted(end for batch in separate for end in ends(batch))


def test_transitions_include_sequence_edges() -> None:
    batch = all_sequences(plan_text(Packed(length=LENGTH), [[[1] * 90]])[0])
    assert all_transition_targets(batch).weights.all()
    assert next_token_targets(batch).weights.mean() < 1
