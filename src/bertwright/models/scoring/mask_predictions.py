"""Predictions for the masked positions of a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.model import Model
from bertwright.models.scoring.masked_states import masked_hidden_states
from bertwright.models.text_batches import add_special_tokens
from bertwright.modules.token_tensors import TokenInfo
from bertwright.runtime.finite import require_finite_outputs


@dataclass(frozen=True)
class TokenPrediction:
    """A predicted token for a masked position."""

    token: str
    probability: float


def encode_masked(model: Model, tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the token ids of a text with masks, special tokens included.

    Errors: UserError for a text without masks, and for a mask beyond the maximum length.
    """
    mask, ids = tokenizer.special_tokens.mask, tokenizer.encode_with_masks(text)
    if mask not in ids:
        raise UserError(f"the text has no mask: write [MASK] for the token to predict ({text})")
    limit = model.encoder.max_length
    token_ids = add_special_tokens(ids, tokenizer.special_tokens, limit, model.recipe.assembly)
    if token_ids.count(mask) < ids.count(mask):
        raise UserError(
            f"the text has masks after the model's {limit} tokens: shorten it ({text[:40]}...)"
        )
    return token_ids


@torch.inference_mode()
def predict_masked_tokens(
    model: Model,
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    top_k: int,
    language_id: int | None = None,
) -> list[list[TokenPrediction]]:
    """Return the ``top_k`` best predictions for every masked position, in float32."""
    mask = tokenizer.special_tokens.mask
    input_ids = torch.tensor([list(token_ids)], device=model.embedding_table.device)
    token_info = TokenInfo.from_token_ids(input_ids).with_language(input_ids, language_id)
    is_masked = input_ids == mask
    positions = is_masked[0].nonzero().T
    states = masked_hidden_states(model, input_ids, token_info, is_masked, positions, mask)[0]
    probabilities = require_finite_outputs(torch.softmax(model.logits(states).float(), -1))
    best = probabilities.topk(min(top_k, len(tokenizer.ids)))
    return [
        [
            TokenPrediction(tokenizer.id_to_token(int(token_id)), float(probability))
            for probability, token_id in zip(row_probabilities, row_ids, strict=True)
        ]
        for row_probabilities, row_ids in zip(best.values, best.indices, strict=True)
    ]
