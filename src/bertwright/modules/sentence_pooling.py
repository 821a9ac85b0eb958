"""Pool the hidden states of a text into its vector."""

from typing import Literal

import torch
from torch import Tensor

Pooling = Literal["mean", "cls"]


def pool_sentences(
    hidden_states: Tensor,
    document_ids: Tensor | None,
    pooling: Pooling,
    ends_with_start_token: bool = False,
) -> Tensor:
    """Pool hidden states (B, L, D) into vectors (B, D) float32.

    ``document_ids`` (B, L) are negative at padding; None means no padding. The mean of a row of
    padding is zero. ``cls`` reads the start
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
    num_tokens = mask.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("bld,bl->bd", hidden_states.float(), mask) / num_tokens


def pool_documents(
    hidden_states: Tensor, document_ids: Tensor, num_documents: int, pooling: Pooling
) -> Tensor:
    """Pool each isolated text of hidden states (B, L, D) into vectors (B, num_documents, D).

    ``document_ids`` (B, L) number the texts of a sequence from 0, and each begins with its start
    token. The vector of a text that is missing is zero.
    """
    numbers = torch.arange(num_documents, device=document_ids.device)
    is_member = document_ids[:, None] == numbers[:, None]
    if pooling == "cls":
        is_member = is_member & (is_member.cumsum(-1) == 1)
    weights = is_member / is_member.sum(-1, keepdim=True).clamp(min=1)
    return torch.einsum("bld,bkl->bkd", hidden_states.float(), weights)
