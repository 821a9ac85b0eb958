"""Two crops of a part of a document."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, strategies

from bertwright.batches.formats import DocumentCrops, SentenceGroups
from bertwright.core.errors import UserError
from numbered_text import CLS, FIRST_TOKEN, PAD, SEP, all_sequences, documents, plan_text


@given(
    text=documents,
    part=strategies.integers(3, 20),
    least=strategies.integers(1, 6),
    lengths=strategies.sampled_from(["uniform", "beta"]),
    near=strategies.booleans(),
)
def test_both_crops_lie_in_one_part_of_a_document(text, part, least, lengths, near):
    sizes = [sum(map(sum, document)) for document in text]
    assume(max(sizes) >= least <= part)
    input_format = DocumentCrops(length=24, part=part, least=least, lengths=lengths, near=near)
    source, split = plan_text(input_format, text)
    starts = split.document_starts
    parts = [
        (first, min(first + part, int(stop)))
        for start, stop in pairwise(starts)
        for first in range(int(start), int(stop), part)
    ]
    parts = [(start, stop) for start, stop in parts if stop - start >= least]
    assert source.num_sequences == len(parts)
    batch = all_sequences(source)
    for token_ids, document_ids, (start, stop) in zip(
        batch.token_ids, batch.token_info.document_ids, parts, strict=True
    ):
        assert document_ids.max() == 1
        if near:
            first, second = (token_ids[document_ids == number][1:-1] for number in range(2))
            assert second[0] - 1 <= first[-1]
            assert first[0] - 1 <= second[-1]
        for number in range(2):
            first, *words, last = token_ids[document_ids == number].tolist()
            assert (first, last) == (CLS, SEP)
            assert words == list(range(words[0], words[-1] + 1))
            assert start <= words[0] - FIRST_TOKEN <= words[-1] - FIRST_TOKEN < stop
            assert least <= len(words) <= 10
        assert (token_ids[document_ids < 0] == PAD).all()


def test_crops_change_from_epoch_to_epoch():
    source, _ = plan_text(DocumentCrops(length=24, part=40, least=2), [[[1] * 40]])
    index = np.zeros(1, np.int64)
    epochs = [source.sequences(index, epoch).token_ids.tobytes() for epoch in range(20)]
    assert len(set(epochs)) > 10
    assert source.sequences(index, 3).token_ids.tobytes() == epochs[3]


def crops_of_a_long_part(**settings):
    """Return the positions and lengths (N, 2) of the crops of one part of 1,000 tokens."""
    source, _ = plan_text(DocumentCrops(length=204, part=1000, **settings), [[[1] * 1000]])
    epochs = [source.sequences(np.zeros(1, np.int64), epoch) for epoch in range(2000)]
    texts = [
        [batch.token_ids[0, batch.token_info.document_ids[0] == n][1:-1] for n in range(2)]
        for batch in epochs
    ]
    starts = np.array([[text[0] - FIRST_TOKEN for text in pair] for pair in texts])
    return starts, np.array([[len(text) for text in pair] for pair in texts])


def test_lengths_are_drawn_as_set():
    _, uniform = crops_of_a_long_part(least=20)
    _, beta = crops_of_a_long_part(least=20, lengths="beta")
    fractions = np.array([(uniform - 20) / 81, (beta - 20) / 81])
    means = np.array([[1 / 2, 1 / 2], [2 / 3, 1 / 3]])
    deviations = np.array([[1 / 12, 1 / 12], [2 / 63, 2 / 63]]) ** 0.5
    assert (np.abs(fractions.mean(axis=1) - means) < 5 * deviations / 2000**0.5 + 1 / 81).all()
    assert (np.abs(fractions.std(axis=1) - deviations) < 0.02).all()


def test_near_crops_lie_on_both_sides_alike():
    starts, lengths = crops_of_a_long_part(least=20, near=True)
    is_inside = (starts[:, 0] > 200) & (starts[:, 0] < 700)
    relative = (starts[:, 1] - starts[:, 0] + lengths[:, 1]) / lengths.sum(axis=1)
    assert relative.min() >= 0
    assert relative.max() <= 1
    assert abs(relative[is_inside].mean() - 0.5) < 0.05


def test_short_documents_are_an_error():
    with pytest.raises(UserError, match="no document of 8 tokens"):
        plan_text(DocumentCrops(length=32), [[[1, 1]]] * 3)


@given(text=documents)
def test_single_sentences_are_read_in_order_and_repeated(text):
    source, split = plan_text(SentenceGroups(length=100, sentences=1, copies=2), text)
    batch = all_sequences(source)
    bounds = split.sentence_starts.tolist()
    assert source.num_sequences == len(bounds) - 1
    for token_ids, start, stop in zip(batch.token_ids, bounds[:-1], bounds[1:], strict=True):
        words = list(range(start + FIRST_TOKEN, stop + FIRST_TOKEN))
        assert token_ids[token_ids != PAD].tolist() == [CLS, *words, SEP] * 2
