"""The reversed half: the same text from its end, with unchanged position ids."""

import numpy as np
import pytest
from hypothesis import given

from bertwright.batches.formats import (
    Contiguous,
    DialogueFormat,
    DocSentences,
    FullSentences,
    HalfReversed,
    InputFormat,
    Mixture,
    Packed,
    SegmentPair,
    SentencePair,
)
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from numbered_text import CLS, FIRST_TOKEN, PAD, SEP, all_sequences, documents, plan_text

LENGTH = 14
FRAMED = [Packed(isolated=False), FullSentences(), DocSentences(), SegmentPair(), SentencePair()]
ALL_FORMATS = [*FRAMED, Contiguous()]
every_format = pytest.mark.parametrize("of", ALL_FORMATS, ids=lambda of: of.kind)


def halves(of: InputFormat, text, epoch: int = 0) -> tuple[SequenceBatch, SequenceBatch] | None:
    """Return forward and reversed sequences; None if the text is too short."""
    try:
        source, _ = plan_text(HalfReversed(length=LENGTH, of=of), text)
    except UserError:
        return None
    number = np.arange(source.num_sequences // 2)
    forward, backward = (source.sequences(number + n, epoch) for n in (0, len(number)))
    return forward, backward


@every_format
@given(text=documents)
def test_reversed_sequence_is_the_same_text_backwards(of, text):
    for epoch in range(2):
        if (reversal := halves(of, text, epoch)) is None:
            return
        forward, backward = reversal
        assert not forward.token_info.is_backward.any()
        assert backward.token_info.is_backward.all()
        np.testing.assert_array_equal(forward.is_real, backward.is_real)
        frame = 0 if isinstance(of, Contiguous) else 1
        for one, other, real in zip(
            forward.token_ids, backward.token_ids, forward.is_real, strict=True
        ):
            inside = slice(frame, real.sum() - frame)
            np.testing.assert_array_equal(other[inside], one[inside][::-1])
            np.testing.assert_array_equal(other[:frame], one[:frame])
            np.testing.assert_array_equal(other[inside.stop :], one[inside.stop :])


@every_format
@given(text=documents)
def test_tokens_keep_their_position_ids(of, text):
    if (reversal := halves(of, text)) is None:
        return
    forward, backward = reversal

    def token_positions(batch: SequenceBatch) -> set[tuple[int, ...]]:
        row, columns = np.nonzero(~batch.is_special)
        reversal = (row, batch.token_info.position_ids[row, columns], batch.token_ids[row, columns])
        return {tuple(segment_ids) for segment_ids in np.stack(reversal, axis=1).tolist()}

    assert token_positions(forward) == token_positions(backward)
    number = forward.is_real.sum(axis=1, keepdims=True)
    columns = np.broadcast_to(np.arange(LENGTH), forward.token_ids.shape)
    np.testing.assert_array_equal(forward.token_info.position_ids, columns)
    expected = np.where(forward.is_real, number - 1 - columns, columns)
    np.testing.assert_array_equal(backward.token_info.position_ids, expected)


@given(text=documents)
def test_first_text_is_segment_zero(text):
    if (reversal := halves(SegmentPair(separators=2), text)) is None:
        return
    _, batch = reversal
    columns, segment = np.arange(LENGTH), batch.token_info.segment_ids
    for row, segment_ids in enumerate(segment):
        gap = np.nonzero(batch.token_ids[row] == SEP)[0][0]
        np.testing.assert_array_equal(segment_ids, (columns > gap) & batch.is_real[row])


def test_reversed_pair():
    source, _ = plan_text(HalfReversed(length=10, of=SegmentPair(short=0.0)), [[[1, 1], [1, 2]]])
    first, second = (FIRST_TOKEN + np.arange(n) for n in (2, 5))
    second = second[2:]
    batch = all_sequences(source)
    forward, backward = batch.token_ids[0], batch.token_ids[1]
    assert forward.tolist() == [CLS, *first, SEP, *second, SEP, PAD, PAD]
    assert backward.tolist() == [CLS, *second[::-1], SEP, *first[::-1], SEP, PAD, PAD]
    token_info = batch.token_info
    assert token_info.position_ids[1].tolist() == [7, 6, 5, 4, 3, 2, 1, 0, 8, 9]
    assert token_info.segment_ids[1].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert token_info.word_ids[1].tolist() == [-1, 0, 0, 1, -1, 2, 3, -1, -1, -1]
    assert token_info.sentence_ids[1].tolist() == [-1, 0, 0, 0, -1, 1, 1, -1, -1, -1]


def test_evaluation_is_not_reversed():
    for of in ALL_FORMATS:
        reversal = HalfReversed(length=LENGTH, of=of).for_evaluation
        assert reversal == of.model_copy(update={"length": LENGTH})


def test_isolated_texts_and_mixtures_are_an_error():
    with pytest.raises(ValueError, match="set isolated to false"):
        HalfReversed(of=Packed())
    with pytest.raises(ValueError, match="is dialogue, which cannot be reversed"):
        HalfReversed(of=DialogueFormat())
    with pytest.raises(
        ValueError, match="both is half-reversed, whose sequences must stay in order"
    ):
        Mixture(parts={"both": HalfReversed(of=SegmentPair())})
