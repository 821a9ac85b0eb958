"""Workload of the training steps: random tokens, with the same masked positions for all sides."""

from dataclasses import dataclass

import numpy as np

from bertwright.batches.batch import Batch
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng, integers, stream_key
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.objectives.objective import MaskingContext, Objective
from bertwright.recipes import Recipe

VOCAB_SIZE = 30_522
SPECIAL_TOKENS = SpecialTokens(pad=0, unknown=100, start=101, end=102, mask=103)
"""Special tokens of the published vocabulary of BERT."""

NUM_BATCHES = 8
"""Distinct batches; the steps cycle through them."""


@dataclass(frozen=True)
class Workload:
    """Steps of masked language modelling by a BERT of a named size, dropout 0.1."""

    size: str
    batch_tokens: int = 4096
    sequence_length: int = 128

    @property
    def batch_size(self) -> int:
        """Sequences per step."""
        return max(1, self.batch_tokens // self.sequence_length)

    def recipe(self) -> Recipe:
        """Return BERT in this size with masked language modelling only, in one phase."""
        return Recipe.load(
            f"bert-{self.size}",
            f"assembly={{kind: packed, length: {self.sequence_length}}}",
            "objectives.next-sentence=null",
            "objectives.masked.corruption={when: dynamic}",
            f"phases=[{{length: {self.sequence_length}}}]",
            f"batch_tokens={self.batch_size * self.sequence_length}",
            f"encoder.positions.size={max(512, self.sequence_length)}",
        )

    def batches(self) -> list[Batch]:
        """Return the batches that the steps cycle through."""
        masked = self.recipe().objectives_of(0)["masked"]
        return [self._batch(masked, number) for number in range(NUM_BATCHES)]

    def _batch(self, objective: Objective, batch_index: int) -> Batch:
        index = batch_index * self.batch_size + np.arange(self.batch_size)
        first_id = SPECIAL_TOKENS.mask + 1
        offsets = integers(
            stream_key(0, "workload"),
            VOCAB_SIZE - first_id,
            index[:, None],
            np.arange(self.sequence_length),
        )
        token_ids = (first_id + offsets).astype(np.int32)
        is_special = np.zeros(token_ids.shape, np.bool_)
        sequences = SequenceBatch(token_ids, TokenInfoArrays(), is_special)
        context = MaskingContext(CounterRng(0, 0, index), Vocabulary(VOCAB_SIZE, SPECIAL_TOKENS))
        masked, targets = objective.make_targets(sequences, context)
        return Batch(masked.token_ids, masked.token_info, {"masked": targets}, token_ids.size)
