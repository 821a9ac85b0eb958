"""Interventions in a forward pass: other input embeddings, and gates on attention heads."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from bertwright.analysis.core.model import AnalysedModel
from bertwright.modules.token_tensors import TokenInfo

EMBEDDINGS_TAP = "embeddings.output"


@torch.no_grad()
def embed_tokens(model: AnalysedModel, token_ids: Tensor, token_info: TokenInfo) -> Tensor:
    """Return the embeddings (B, L, D) of tokens (B, L) that the first block reads."""
    with model.encoder.record(EMBEDDINGS_TAP) as values:
        model.encoder(token_ids, token_info, stop_after=0)
    return values[EMBEDDINGS_TAP]


def replace_embeddings(model: AnalysedModel, embeddings: Tensor) -> AbstractContextManager[None]:
    """Replace the embeddings that the first block reads by ``embeddings`` (B, L, D)."""
    return model.encoder.replace(EMBEDDINGS_TAP, lambda _: embeddings)


CONTEXT_TAP = "attention.context"


def gate_heads(model: AnalysedModel, gates: Tensor) -> AbstractContextManager[None]:
    """Multiply the outputs of heads by ``gates``: (layers, H), or (layers, B, H) per text."""
    return model.encoder.gate(
        {f"blocks.{n}.{CONTEXT_TAP}": gate[..., None, None] for n, gate in enumerate(gates)}
    )


def open_gates(model: AnalysedModel) -> Tensor:
    """Return gates that are all 1, (layers, H)."""
    return torch.ones(model.num_layers, model.num_heads).to(model.text_model.model.embedding_table)
