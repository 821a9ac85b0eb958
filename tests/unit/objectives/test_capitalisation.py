"""Targets of the capitalisation objective."""

import numpy as np

from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.objectives.capitalisation import Capitalisation
from bertwright.objectives.objective import MaskingContext


def test_words_without_annotation_are_no_targets() -> None:
    """The first sequence has capitals annotated, the second has not."""
    word_ids = np.array([[-1, 0, 0, 1, -1], [-1, 0, 1, 1, -1]], np.int32)
    is_capitalised = np.array([[0, 1, 0, 0, 0], [-1] * 5], np.int32)
    batch = SequenceBatch(
        np.full((2, 5), 7, np.int32),
        TokenInfoArrays(word_ids=word_ids, is_capitalised=is_capitalised),
        word_ids < 0,
    )
    specials = SpecialTokens(pad=0, unknown=1, start=2, end=3, mask=4)
    _, targets = Capitalisation().make_targets(
        batch, MaskingContext(CounterRng(0), Vocabulary(9, specials))
    )
    assert np.flatnonzero(targets.weights).tolist() == [1, 3]
    assert targets.labels[targets.weights > 0].tolist() == [1, 0]
    assert targets.labels.min() == 0
