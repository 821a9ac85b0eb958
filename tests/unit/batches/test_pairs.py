"""Pairs of texts: properties of every pair, and how often B has which relation to A."""

import numpy as np
import pytest
from hypothesis import given, strategies

from bertwright.batches.formats import SegmentPair, SentencePair
from bertwright.batches.formats.arrangement.text_layout import truncate_longest_first
from bertwright.batches.token_info import RELATIONS
from numbered_text import CLS, FIRST_TOKEN, PAD, SEP, all_sequences, documents, plan_text

LENGTH = 16
MANY = [[[2, 1, 1], [3], [1, 1], [2, 2]] * 5] * 20


def split_pair(batch, i, separators=1):
    """Return A and B of one sequence."""
    positions = np.flatnonzero(~batch.is_special[i])
    gap = np.flatnonzero(np.diff(positions) > 1)
    assert len(gap) == 1
    a, b = np.split(batch.token_ids[i, positions], gap + 1)
    ends = [SEP] * separators
    assert batch.token_ids[i][batch.is_real[i]].tolist() == [CLS, *a, *ends, *b, SEP]
    return a, b


@given(text=documents, separators=strategies.sampled_from([1, 2]))
def test_pairs_are_two_spans_of_text(text, separators):
    for kind in (SegmentPair, SentencePair):
        source, split = plan_text(kind(length=LENGTH, separators=separators), text)
        for epoch in range(3):
            batch = all_sequences(source, epoch)
            for i in range(source.num_sequences):
                a, b = split_pair(batch, i, separators)
                for text_tokens in (a, b):
                    np.testing.assert_array_equal(
                        text_tokens, text_tokens[0] + np.arange(len(text_tokens))
                    )
                    assert len(set(split.document_of(text_tokens))) == 1
                same = split.document_of(a[0]) == split.document_of(b[0])
                if batch.relation[i] == 0:
                    assert same
                    assert b[0] > a[-1]
                    if len(a) + len(b) < LENGTH - 2 - separators:
                        assert b[0] == a[-1] + 1
                else:
                    assert not same or split.num_documents == 1


@given(text=documents)
def test_segments(text):
    source, _ = plan_text(SegmentPair(length=LENGTH, separators=2), text)
    batch = all_sequences(source)
    for i in range(source.num_sequences):
        a, b = split_pair(batch, i, separators=2)
        ones = [0] * (len(a) + 2) + [1] * (len(b) + 2)
        assert batch.token_info.segment_ids[i].tolist() == ones + [0] * (LENGTH - len(ones))
        assert (batch.token_ids[i, len(ones) :] == PAD).all()


@given(strategies.integers(1, 40), strategies.integers(1, 40), strategies.integers(2, 30))
def test_longer_text_is_truncated_token_by_token(num_a, num_b, max_total):
    left_a, left_b = num_a, num_b
    while left_a + left_b > max_total:
        if left_a > left_b:
            left_a -= 1
        else:
            left_b -= 1
    assert tuple(
        int(n) for n in truncate_longest_first(np.array(num_a), np.array(num_b), max_total)
    ) == (
        left_a,
        left_b,
    )


def textual_relation(a, b, split):
    """Return how B is related to A, from their tokens, which are numbered in order of the text."""
    if split.document_of(a[:1]) != split.document_of(b[:1]):
        return "random"
    gap = {True: b[0] - a[-1], False: a[0] - b[-1]}[bool(a[0] < b[0])]
    if gap > 1:
        return "same-document"
    return "next" if a[0] < b[0] else "previous"


@pytest.mark.parametrize(
    "second",
    [
        {"next": 0.5, "previous": 0.5},
        {"next": 0.2, "random": 0.5, "previous": 0.3},
        {"next": 0.4, "same-document": 0.3, "random": 0.3},
    ],
    ids=lambda second: "-".join(second),
)
def test_texts_have_the_relation_of_the_sequence_as_often_as_set(second):
    # Sentences of one token: chunks fill a sequence exactly, so that no text is truncated.
    source, split = plan_text(
        SegmentPair(length=LENGTH, short=0.0, second=second), [[[1]] * 24] * 40
    )
    counts = dict.fromkeys(second, 0)
    num_touching = 0
    for epoch in range(8):
        batch = all_sequences(source, epoch)
        for i, relation_id in enumerate(batch.relation):
            a, b = split_pair(batch, i)
            relation = RELATIONS[relation_id]
            actual = textual_relation(a, b, split)
            # A text from elsewhere in the document may begin where the first one ends.
            is_touching = relation == "same-document" and actual in ("next", "previous")
            num_touching += is_touching
            assert actual == relation or is_touching
            counts[relation] += 1
    total = sum(counts.values())
    assert num_touching < 0.5 * counts.get("same-document", 1)
    for relation, fraction in second.items():
        assert counts[relation] / total == pytest.approx(fraction, abs=0.05)


def test_single_sentences_have_a_random_second_text():
    source, _ = plan_text(SegmentPair(length=LENGTH), [[[4]], [[5]], [[3]]])
    assert all_sequences(source).relation.tolist() == [1, 1, 1]


def test_a_chunk_of_one_sentence_has_a_random_second_text():
    second = {"next": 0.3, "same-document": 0.4, "random": 0.3}
    text = [[[LENGTH - 3]] * 6] * 8
    source, split = plan_text(SegmentPair(length=LENGTH, short=0.0, second=second), text)
    batch = all_sequences(source)
    assert set(batch.relation.tolist()) == {RELATIONS.index("random")}
    for i in range(len(batch.relation)):
        a, b = split_pair(batch, i)
        assert split.document_of(a[0]) != split.document_of(b[0])


def test_next_pairs_of_sentences():
    source, _ = plan_text(SentencePair(length=12), [[[2], [1, 1]], [[3], [1]]])
    pairs = set()
    for epoch in range(20):
        batch = all_sequences(source, epoch)
        pairs |= {
            tuple(token_ids)
            for token_ids, r in zip(batch.token_ids.tolist(), batch.relation, strict=True)
            if not r
        }
    assert pairs == {
        (CLS, 100, 101, SEP, 102, 103, SEP, PAD, PAD, PAD, PAD, PAD),
        (CLS, 104, 105, 106, SEP, 107, SEP, PAD, PAD, PAD, PAD, PAD),
    }


def test_random_texts_come_from_all_other_documents():
    text = [[[1], [1]], [[1]], [[1], [1], [1]], [[1]]]
    source, split = plan_text(SentencePair(length=LENGTH), text)
    partners = {
        split.document_of(split_pair(all_sequences(source, epoch), 1)[1][0]) for epoch in range(60)
    }
    assert partners == {0, 2, 3}


def test_text_is_truncated_at_both_ends():
    source, _ = plan_text(SentencePair(length=10), [[[20]], [[4]]])
    batch = [source.sequences(np.array([0]), epoch) for epoch in range(50)]
    starts = {int(r.token_ids[0, 1]) - FIRST_TOKEN for r in batch}
    assert starts == {0, 1, 2, 3}  # 4 of its 7 tokens are kept


def test_a_document_is_short_as_a_whole():
    """Devlin et al. 2019, released code: the target length is drawn before the loop over chunks."""
    input_format = SegmentPair(length=LENGTH, short=0.4, second={"next": 1.0, "random": 0.0})
    source, split = plan_text(input_format, [[[1]] * 60] * 300)
    batch = all_sequences(source)
    lengths_of = {n: [] for n in range(300)}
    for token_ids, special in zip(batch.token_ids, batch.is_special, strict=True):
        text = token_ids[~special]
        lengths_of[int(split.document_of(text)[0])].append(len(text))
    targets = np.array([lengths[0] for lengths in lengths_of.values()])
    assert all(set(lengths[:-1]) == {lengths[0]} for lengths in lengths_of.values())
    full = LENGTH - 3
    assert abs((targets < full).mean() - 0.4 * (1 - 1 / (full - 1))) < 4 * np.sqrt(0.24 / 300)
    assert set(targets) == set(range(2, full + 1))
