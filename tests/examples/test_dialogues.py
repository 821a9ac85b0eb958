"""Turns of dialogues as rows."""

import numpy as np
import pytest
from numbered_text import CLS, FIRST_PIECE, PAD, SEP, SPECIALS, NumberedSplit

from bertwright.errors import UserError
from bertwright.examples.assembly import Dialogue, Mixture, SegmentPair
from bertwright.examples.assembly.dialogues import leveled
from bertwright.examples.coordinates import RELATIONS
from bertwright.text.shards import Turns


def split() -> NumberedSplit:
    """Dialogues of five, two and one turns; every sentence is a turn."""
    text = NumberedSplit.of([[[1], [2], [1, 1], [3], [1]], [[2], [2]], [[9]]])
    speakers = np.array([0, 1, 1, 0, 1, 0, 1, 0], np.uint8)
    text.turns = Turns(text.sentence_starts[:-1], speakers)
    return text


def rows_of(fake: float, length: int = 16, epoch: int = 0):
    source = Dialogue(length=length, fake=fake).plan(split(), SPECIALS, 0)  # type: ignore[arg-type]
    return source.rows(np.arange(source.num_rows), epoch)


def test_rows_are_turns_that_follow_each_other_with_the_roles_of_who_speaks() -> None:
    rows = rows_of(fake=0.0)
    p = FIRST_PIECE
    assert [row[row != PAD].tolist() for row in rows.pieces] == [
        [CLS, p, SEP, p + 1, p + 2, SEP, p + 3, p + 4, SEP],
        [CLS, p + 1, p + 2, SEP, p + 3, p + 4, SEP, p + 5, p + 6, p + 7, SEP],
        [CLS, p + 3, p + 4, SEP, p + 5, p + 6, p + 7, SEP, p + 8, SEP],
        [CLS, p + 9, p + 10, SEP, p + 11, p + 12, SEP],
    ]
    segment = rows.coordinates.segment
    assert segment is not None
    assert segment[0, :9].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert segment[1, :11].tolist() == [0] * 7 + [1] * 4
    assert segment[2, :10].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]
    assert (rows.relation == RELATIONS.index("real")).all()
    assert np.array_equal(rows.real, rows.pieces != PAD)


def test_in_a_fake_one_turn_but_the_first_is_of_another_dialogue() -> None:
    real, seen = rows_of(fake=0.0), set()
    for epoch in range(30):
        rows = rows_of(fake=1.0, epoch=epoch)
        assert (rows.relation == RELATIONS.index("fake")).all()
        for row, own in zip(rows.pieces, real.pieces, strict=True):
            turns, originals = (
                [part.tolist() for part in np.split(r, np.flatnonzero(r == SEP) + 1)][:-1]
                for r in (row, own)
            )
            changed = [n for n, (a, b) in enumerate(zip(turns, originals, strict=True)) if a != b]
            assert len(changed) == 1
            assert changed[0] > 0
            seen.add(changed[0])
            documents = [
                np.searchsorted(split().document_starts, turn[0] - FIRST_PIECE, side="right")
                for turn in (turns[changed[0]], originals[0][1:])
            ]
            assert documents[0] != documents[1]
    assert seen == {1, 2}


def test_the_longest_turns_are_cut_first() -> None:
    sizes = np.array([[1, 10, 10], [1, 2, 20], [10, 10, 10], [1, 2, 3]])
    assert leveled(sizes, np.full(4, 12)).tolist() == [[1, 5, 5], [1, 2, 9], [4, 4, 4], [1, 2, 3]]


def test_half_of_the_rows_are_fake() -> None:
    relations = np.concatenate([rows_of(0.5, epoch=epoch).relation for epoch in range(200)])  # type: ignore[list-item]
    assert (relations == RELATIONS.index("fake")).mean() == pytest.approx(0.5, abs=0.05)


def test_text_without_dialogues_is_refused() -> None:
    with pytest.raises(UserError, match="prepare some with --dialogues"):
        Dialogue(length=16).plan(NumberedSplit.of([[[1]]]), SPECIALS, 0)  # type: ignore[arg-type]


def test_a_mixture_has_the_relations_of_its_parts() -> None:
    both = Mixture(parts={"pairs": SegmentPair(), "dialogues": Dialogue()})
    assert both.relations == {"next", "random", "real", "fake"}
    assert both.needs == {"dialogues"}
