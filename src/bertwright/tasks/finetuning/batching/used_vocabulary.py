"""Fine-tuning with a reduced embedding table: only the tokens of the training data.

Tokens that do not occur have no gradient; only weight decay would change them, and here it does
not. They would still cost the optimiser as much as other tokens: with a large vocabulary, most of
the time and memory of a step on short texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask

TOKEN_TABLE = "embeddings.tokens.weight"
"""Name of the embedding table within an encoder."""


@dataclass(frozen=True)
class UsedVocabulary:
    """The tokens of a vocabulary that occur in the training data.

    Attributes:
        full_table: (V, E) embedding table of all tokens.
        used_token_ids: (K,) int64, ids of the tokens that occur.
        compact_ids: (V,) int64, index of each token in ``used_token_ids``; 0 for the others.
    """

    full_table: Tensor
    used_token_ids: Tensor
    compact_ids: Tensor

    @staticmethod
    def from_tasks(
        encoder: Encoder, encoded_tasks: Sequence[EncodedTask], padding_id: int
    ) -> "UsedVocabulary | None":
        """Return the vocabulary of the training sequences, including padding.

        None if a token has another embedding than its row of a single table.
        """
        if encoder.value_embeddings is not None:
            return None
        if not isinstance(encoder.embeddings.tokens, nn.Embedding):
            return None
        used = {padding_id}
        for task in encoded_tasks:
            for sequence in task.sequences:
                used.update(sequence.token_ids)
        table = encoder.embeddings.tokens.weight.detach()
        used_token_ids = torch.tensor(sorted(used), device=table.device)
        compact_ids = torch.zeros(len(table), dtype=torch.int64, device=table.device)
        compact_ids[used_token_ids] = torch.arange(len(used_token_ids), device=table.device)
        return UsedVocabulary(table, used_token_ids, compact_ids)

    def restrict(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return encoder parameters with the reduced table."""
        return {**state, TOKEN_TABLE: state[TOKEN_TABLE][self.used_token_ids]}

    def expand(self, state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """Return parameters with the whole table; encoder names start with ``prefix``."""
        table = self.full_table.to(state[prefix + TOKEN_TABLE].dtype).clone()
        table[self.used_token_ids] = state[prefix + TOKEN_TABLE]
        return {**state, prefix + TOKEN_TABLE: table}
