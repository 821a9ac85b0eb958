"""Pool the hidden states of a text into its vector."""

import torch
from torch import Tensor

from bertwright.recipes import Pooling


def pool_sentences(
    hidden_states: Tensor,
    document_ids: Tensor | None,
    pooling: Pooling,
    ends_with_start_token: bool,
) -> Tensor:
    """Pool hidden states (B, L, D) into vectors (B, D) float32.

    ``document_ids`` (B, L) are negative at padding; None means no padding. ``cls`` reads the start
    token, the first of a text or, with ``ends_with_start_token``, the last.
    """
    if pooling == "cls" and not ends_with_start_token:
        return hidden_states[:, 0].float()
    if document_ids is None:
        return hidden_states[:, -1].float() if pooling == "cls" else hidden_states.float().mean(1)
    mask = (document_ids >= 0).float()
    if pooling == "cls":
        last = mask.sum(1).long() - 1
        return hidden_states[torch.arange(len(last), device=last.device), last].float()
    return torch.einsum("bld,bl->bd", hidden_states.float(), mask) / mask.sum(1, keepdim=True)
