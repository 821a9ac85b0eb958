"""Turns of dialogues as sequences."""

import numpy as np
import pytest

from bertwright.batches.formats import DialogueFormat, Mixture, SegmentPair
from bertwright.batches.formats.dialogues import level_lengths
from bertwright.batches.token_info import RELATIONS
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import DialogueTurns
from numbered_text import CLS, FIRST_TOKEN, PAD, SEP, SPECIALS, NumberedSplit


def split() -> NumberedSplit:
    """Return dialogues of five, two and one turns; every sentence is a turn."""
    text = NumberedSplit.of([[[1], [2], [1, 1], [3], [1]], [[2], [2]], [[9]]])
    speakers = np.array([0, 1, 1, 0, 1, 0, 1, 0], np.uint8)
    text.turns = DialogueTurns(text.sentence_starts[:-1], speakers)
    return text


def dialogue_batch(fake: float, length: int = 16, epoch: int = 0):
    source = DialogueFormat(length=length, fake=fake).plan(split(), SPECIALS, 0)  # type: ignore[arg-type]
    return source.sequences(np.arange(source.num_sequences), epoch)


def test_sequences_are_consecutive_turns_with_speaker_roles() -> None:
    batch = dialogue_batch(fake=0.0)
    p = FIRST_TOKEN
    assert [token_ids[token_ids != PAD].tolist() for token_ids in batch.token_ids] == [
        [CLS, p, SEP, p + 1, p + 2, SEP, p + 3, p + 4, SEP],
        [CLS, p + 1, p + 2, SEP, p + 3, p + 4, SEP, p + 5, p + 6, p + 7, SEP],
        [CLS, p + 3, p + 4, SEP, p + 5, p + 6, p + 7, SEP, p + 8, SEP],
        [CLS, p + 9, p + 10, SEP, p + 11, p + 12, SEP],
    ]
    segment_ids = batch.token_info.segment_ids
    assert segment_ids is not None
    assert segment_ids[0, :9].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert segment_ids[1, :11].tolist() == [0] * 7 + [1] * 4
    assert segment_ids[2, :10].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]
    assert (batch.relation == RELATIONS.index("real")).all()
    assert np.array_equal(batch.is_real, batch.token_ids != PAD)


def test_fake_has_one_later_turn_of_another_dialogue() -> None:
    real, replaced = dialogue_batch(fake=0.0), set()
    for epoch in range(30):
        batch = dialogue_batch(fake=1.0, epoch=epoch)
        assert (batch.relation == RELATIONS.index("fake")).all()
        for token_ids, original in zip(batch.token_ids, real.token_ids, strict=True):
            turns, originals = (
                [part.tolist() for part in np.split(r, np.flatnonzero(r == SEP) + 1)][:-1]
                for r in (token_ids, original)
            )
            changed = [n for n, (a, b) in enumerate(zip(turns, originals, strict=True)) if a != b]
            assert len(changed) == 1
            assert changed[0] > 0
            replaced.add(changed[0])
            documents = [
                np.searchsorted(split().document_starts, turn[0] - FIRST_TOKEN, side="right")
                for turn in (turns[changed[0]], originals[0][1:])
            ]
            assert documents[0] != documents[1]
    assert replaced == {1, 2}


def test_longest_turns_are_truncated_first() -> None:
    sizes = np.array([[1, 10, 10], [1, 2, 20], [10, 10, 10], [1, 2, 3]])
    assert level_lengths(sizes, np.full(4, 12)).tolist() == [
        [1, 5, 5],
        [1, 2, 9],
        [4, 4, 4],
        [1, 2, 3],
    ]


@pytest.mark.parametrize("turns", [2, 3, 4, 8])
@pytest.mark.parametrize("length", [8, 9, 10, 16, 17, 40])
def test_every_turn_of_a_sequence_has_tokens(turns: int, length: int) -> None:
    text = NumberedSplit.of([[[4]] * 12, [[1]] * 12])
    text.turns = DialogueTurns(text.sentence_starts[:-1], np.arange(24, dtype=np.uint8) % 2)
    for fake in (0.0, 1.0):
        source = DialogueFormat(length=length, turns=turns, fake=fake).plan(text, SPECIALS, 0)  # type: ignore[arg-type]
        token_ids = source.sequences(np.arange(source.num_sequences), 0).token_ids
        num_turns = (token_ids == SEP).sum(1)
        assert (num_turns == min(turns, (length - 1) // 2)).all()
        assert (token_ids[:, 0] == CLS).all()
        is_separator = np.isin(token_ids, (CLS, SEP))
        assert not (is_separator[:, :-1] & is_separator[:, 1:]).any()


def test_half_of_the_sequences_are_fake() -> None:
    relations = np.concatenate([dialogue_batch(0.5, epoch=epoch).relation for epoch in range(200)])  # type: ignore[list-item]
    assert (relations == RELATIONS.index("fake")).mean() == pytest.approx(0.5, abs=0.05)


def test_text_without_dialogues_is_an_error() -> None:
    with pytest.raises(UserError, match="prepare some with --dialogues"):
        DialogueFormat(length=16).plan(NumberedSplit.of([[[1]]]), SPECIALS, 0)  # type: ignore[arg-type]


def test_mixture_has_relations_of_its_parts() -> None:
    mixture = Mixture(parts={"pairs": SegmentPair(), "dialogues": DialogueFormat()})
    assert mixture.relations == {"next", "random", "real", "fake"}
    assert mixture.data_requirements == {"dialogues"}
