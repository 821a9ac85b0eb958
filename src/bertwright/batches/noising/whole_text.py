"""Noisings whose decoder predicts the whole text."""

import numpy as np

from bertwright.batches.arrays import IntArray
from bertwright.batches.noising.noising import Noising
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary


class WholeTextNoising(Noising):
    """A base class of noisings after which every token of a text is a target."""

    def num_targets(self, length: int) -> int:
        return length

    def whole_text_targets(
        self,
        batch: SequenceBatch,
        noised: SequenceBatch,
        vocabulary: Vocabulary,
        num_changed: int,
        num_kept: IntArray,
    ) -> Targets:
        """Return the tokens of ``batch`` as targets.

        ``num_changed`` is the number of tokens that were masked or deleted in all sequences,
        ``num_kept`` (B, 1) the length of each noised sequence.
        """
        column = np.arange(batch.token_ids.shape[1])
        return self.make_targets(
            noised,
            vocabulary,
            (num_changed, int(batch.is_real.sum())),
            token_ids=batch.token_ids.astype(np.int64),
            is_real=batch.is_real,
            source_positions=np.minimum(column, num_kept - 1),
            is_unscored=batch.is_spelled_special,
        )
