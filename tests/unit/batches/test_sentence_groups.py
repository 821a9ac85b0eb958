"""Groups of neighbouring sentences, and the targets of their decoders."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, strategies

from bertwright.batches.formats import SentenceGroups
from bertwright.core.errors import UserError
from bertwright.objectives.neighbouring_sentences import neighbour_targets
from numbered_text import CLS, FIRST_TOKEN, PAD, SEP, all_sequences, documents, plan_text


@given(text=documents, sentences=strategies.integers(2, 4))
def test_two_neighbouring_sentences_are_in_one_group(text, sentences):
    assume(any(len(document) > 1 for document in text))
    input_format = SentenceGroups(length=sentences * 52, sentences=sentences)
    source, split = plan_text(input_format, text)
    batch = all_sequences(source)
    bounds = split.sentence_starts.tolist()
    spans = list(pairwise(bounds))
    documents_of = np.searchsorted(split.document_starts, bounds[:-1], side="right").tolist()
    expected = [
        (first, second)
        for first, second, a, b in zip(
            spans, spans[1:], documents_of, documents_of[1:], strict=False
        )
        if a == b
    ]
    pairs = []
    for token_ids, document_ids in zip(batch.token_ids, batch.token_info.document_ids, strict=True):
        group = []
        for number in range(document_ids.max() + 1):
            first, *words, last = token_ids[document_ids == number].tolist()
            assert (first, last) == (CLS, SEP)
            assert words == list(range(words[0], words[-1] + 1))
            group.append((words[0] - FIRST_TOKEN, words[-1] - FIRST_TOKEN + 1))
        assert (token_ids[document_ids < 0] == PAD).all()
        pairs += pairwise(group)
    assert pairs == expected


def test_long_sentences_lose_their_last_tokens():
    source, _ = plan_text(SentenceGroups(length=18, sentences=3), [[[1] * 2, [1] * 9, [1] * 7]])
    (token_ids,) = all_sequences(source).token_ids.tolist()
    words = [100, 101], [102, 103, 104, 105, 106], [111, 112, 113, 114, 115]
    assert token_ids == [token for ids in words for token in (CLS, *ids, SEP)]


def test_documents_of_one_sentence_and_short_lengths_are_errors():
    with pytest.raises(UserError, match="no document of two sentences"):
        plan_text(SentenceGroups(length=32), [[[1, 1]]] * 3)
    with pytest.raises(UserError, match="need a length of 12"):
        plan_text(SentenceGroups(length=9, sentences=4), [[[1, 1]] * 3])


def test_each_sentence_predicts_its_neighbours():
    text = [[[1] * 2, [1] * 3, [1] * 1], [[1] * 2, [1] * 2]]
    batch = all_sequences(plan_text(SentenceGroups(length=16, sentences=3), text)[0])
    targets = neighbour_targets(batch)
    labels: dict[tuple[int, ...], list[int]] = {}
    for position, label, weight, *extra in zip(
        targets.positions,
        targets.labels,
        targets.weights,
        *targets.extra_inputs.values(),
        strict=True,
    ):
        if weight:
            assert batch.token_ids.ravel()[position + 1] == label
            labels.setdefault(tuple(int(value) for value in extra), []).append(int(label))
    # (is_next, first and last position of the encoded sentence): the tokens of the predicted one.
    assert labels == {
        (0, 4, 8): [100, 101, SEP],
        (0, 9, 11): [102, 103, 104, SEP],
        (0, 20, 23): [106, 107, SEP],
        (1, 0, 3): [102, 103, 104, SEP],
        (1, 4, 8): [105, SEP],
        (1, 16, 19): [108, 109, SEP],
    }
