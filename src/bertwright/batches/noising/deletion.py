"""Noising that deletes words of a text, which the decoder reconstructs (Wang et al. 2021)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.noising.noising import replace_text, require_single_text
from bertwright.batches.noising.whole_text import WholeTextNoising
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng


class Deletion(WholeTextNoising):
    """Each word is deleted with probability ``deletion_rate``; the decoder predicts the whole text.

    At least one word of a text is kept. Words are deleted independently of each other.
    """

    kind: Literal["deletion"] = "deletion"
    begins: Literal["pad", "start", "end", "mask"] = "start"
    deletion_rate: float = Field(default=0.6, gt=0.0, lt=1.0)

    @property
    def mid_training_masking_rate(self) -> float:
        return self.deletion_rate

    def add_noise(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> tuple[SequenceBatch, Targets]:
        require_single_text(batch)
        word_ids = batch.token_info.word_ids
        if word_ids is None:
            raise UserError("deletion needs an input format with word boundaries")
        is_text = ~batch.is_special & (word_ids >= 0)
        draws = np.where(is_text, rng.fold_in("deletion").uniform(np.maximum(word_ids, 0)), -1.0)
        is_last_word = draws == draws.max(axis=1, keepdims=True)
        is_deleted = is_text & (draws < self.deletion_rate) & ~is_last_word
        is_kept = batch.is_real & ~is_deleted
        order = np.argsort(~is_kept, axis=1, kind="stable")
        num_kept = is_kept.sum(axis=1, keepdims=True)
        column = np.arange(batch.token_ids.shape[1])
        kept_ids = np.take_along_axis(batch.token_ids, order, axis=1)
        token_ids = np.where(column < num_kept, kept_ids, vocabulary.specials.pad)
        noised = replace_text(batch, token_ids, order, column < num_kept)
        targets = self.whole_text_targets(
            batch, noised, vocabulary, int(is_deleted.sum()), num_kept
        )
        return noised, targets
