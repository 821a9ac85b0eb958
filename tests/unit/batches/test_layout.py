"""Layout of text spans as sequences."""

import numpy as np

from bertwright.batches.formats.arrangement.layout import SequenceLayout, gather_padded
from numbered_text import CLS, PAD, SEP, SPECIALS, NumberedSplit

# Two sentences of one document (tokens 100 to 104), then a document of three tokens (105 to 107).
SPLIT = NumberedSplit.of([[[1, 2], [1, 1]], [[3]]])


def lay_out(starts, counts, isolated, length=10, lead=0):
    layout = SequenceLayout(SPLIT, SPECIALS, length, isolated)
    return layout.lay_out(np.array(starts), np.array(counts), lead)


def test_isolated_documents_are_separated_by_end_and_start():
    batch = lay_out([2, 5], [5, 3], isolated=True)
    assert batch.token_ids.tolist() == [
        [CLS, 102, 103, 104, SEP, CLS, 105, 106, SEP, PAD],
        [CLS, 105, 106, 107, SEP, PAD, PAD, PAD, PAD, PAD],
    ]
    assert batch.token_info.document_ids.tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1, 1, -1],
        [0, 0, 0, 0, 0, -1, -1, -1, -1, -1],
    ]
    assert batch.token_info.position_ids.tolist() == [
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 0],
        [0, 1, 2, 3, 4, 0, 0, 0, 0, 0],
    ]
    assert batch.token_info.word_ids.tolist() == [
        [-1, 0, 1, 2, -1, -1, 3, 3, -1, -1],
        [-1, 0, 0, 0, -1, -1, -1, -1, -1, -1],
    ]
    assert batch.token_info.sentence_ids.tolist() == [
        [-1, 0, 1, 1, -1, -1, 2, 2, -1, -1],
        [-1, 0, 0, 0, -1, -1, -1, -1, -1, -1],
    ]
    assert batch.is_special.tolist() == (batch.token_info.word_ids < 0).tolist()


def test_joined_documents_are_separated_by_end():
    batch = lay_out([0], [8], isolated=False, length=12)
    assert batch.token_ids.tolist() == [
        [CLS, 100, 101, 102, 103, 104, SEP, 105, 106, 107, SEP, PAD]
    ]
    assert batch.token_info.document_ids.tolist() == [[0] * 11 + [-1]]
    assert batch.token_info.position_ids is None


def test_full_sequence_is_truncated_and_ends_with_end():
    batch = lay_out([3, 2, 1, 0], [8, 8, 8, 8], isolated=True, length=7)
    assert batch.token_ids.tolist() == [
        [CLS, 103, 104, SEP, CLS, 105, SEP],
        [CLS, 102, 103, 104, SEP, CLS, SEP],
        [CLS, 101, 102, 103, 104, SEP, SEP],
        [CLS, 100, 101, 102, 103, 104, SEP],
    ]
    assert batch.is_real.all()


def test_sequence_may_begin_within_separators():
    batch = lay_out([5, 5, 5], [3, 3, 3], isolated=True, length=7, lead=np.array([0, 1, 2]))
    assert batch.token_ids.tolist() == [
        [CLS, 105, 106, 107, SEP, PAD, PAD],
        [CLS, CLS, 105, 106, 107, SEP, PAD],
        [CLS, SEP, CLS, 105, 106, 107, SEP],
    ]
    assert batch.token_info.document_ids.tolist() == [
        [0, 0, 0, 0, 0, -1, -1],
        [0, 1, 1, 1, 1, 1, -1],
        [0, 0, 1, 1, 1, 1, 1],
    ]


def test_gathering_past_the_end_is_harmless():
    tokens, _ = gather_padded(SPLIT, np.array([0, 6]), 4)
    assert tokens[0].tolist() == [100, 101, 102, 103]
    assert tokens[1, :2].tolist() == [106, 107]
    assert gather_padded(SPLIT, np.array([0]), 20)[0].shape == (1, 20)
