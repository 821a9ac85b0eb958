"""Labels of text pairs, checked against the order of their tokens in the text."""

from typing import Any, cast

import numpy as np
import pytest

from bertwright.batches.formats import SegmentPair
from bertwright.objectives.sentence_relation import (
    NextSentence,
    SentenceDistance,
    SentenceOrder,
    SentenceRelation,
    TextRelation,
)
from numbered_text import SEP, all_sequences, plan_text

# Sentences of one token: chunks fill a sequence exactly, so that no text is truncated.
TEXT = [[[1]] * 24] * 12


def order_label(a: int, b: int, same_document: bool) -> int:
    """Lan et al. 2020, section 3.1: in order, or swapped."""
    assert same_document
    return 0 if a < b else 1


def next_label(a: int, b: int, same_document: bool) -> int:
    """Devlin et al. 2019: next (0 in the released code), or random."""
    return 0 if same_document else 1


def three_way_label(a: int, b: int, same_document: bool) -> int:
    """Wang et al. 2019, section 2.2: next, random or previous."""
    return 1 if not same_document else 0 if a < b else 2


@pytest.mark.parametrize(
    ("objective", "second", "label"),
    [
        (SentenceOrder(), {"next": 0.5, "previous": 0.5}, order_label),
        (NextSentence(), {"next": 0.5, "random": 0.5}, next_label),
        (SentenceRelation(), {"next": 0.4, "previous": 0.3, "random": 0.3}, three_way_label),
    ],
    ids=lambda value: value.kind if isinstance(value, TextRelation) else "",
)
def test_labels_say_in_which_order_the_texts_stood(objective, second, label) -> None:
    source, split = plan_text(SegmentPair(length=16, short=0.0, second=second), TEXT)
    batch, targets = objective.make_targets(all_sequences(source), cast(Any, None))
    assert targets.weights.all()
    assert (targets.positions == 16 * np.arange(source.num_sequences)).all()
    expected = []
    for token_ids in batch.token_ids:
        a, b = int(token_ids[1]), int(token_ids[list(token_ids).index(SEP) + 1])
        documents = split.document_of(np.array([a, b]))
        expected.append(label(a, b, bool(documents[0] == documents[1])))
    assert targets.labels.tolist() == expected
    assert set(expected) == set(range(len(second)))
    # Trained and scored in the same classes.
    assert objective.num_classes(100) == len(second)


def test_the_cost_counts_one_hidden_state_for_each_sequence() -> None:
    assert SentenceOrder().states_per_token(24, {}) * 24 == 1


def test_distance_of_sentences_is_adjacent_same_document_or_other() -> None:
    """Sun et al. 2019b, section 4.2.2: 0 for adjacent, 1 for one document, 2 for two documents."""
    second = {"next": 0.3, "same-document": 0.3, "random": 0.4}
    source, split = plan_text(SegmentPair(length=16, short=0.0, second=second), TEXT)
    batch, targets = SentenceDistance().make_targets(all_sequences(source), cast(Any, None))
    num_distant = 0
    for token_ids, label in zip(batch.token_ids, targets.labels, strict=True):
        first_end = list(token_ids).index(SEP)
        end, start = int(token_ids[first_end - 1]), int(token_ids[first_end + 1])
        documents = split.document_of(np.array([end, start]))
        assert (documents[0] != documents[1]) == (label == 2)
        assert label != 0 or start == end + 1
        num_distant += label == 1 and start != end + 1
    assert num_distant > 0.5 * (targets.labels == 1).sum()
    assert set(targets.labels.tolist()) == {0, 1, 2}
