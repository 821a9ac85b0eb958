"""Hidden states that predict masked tokens.

The input of a masked model has mask tokens. A permutation model is trained without masks; there,
masked positions come last in the factorisation order, and query tokens after the text predict them.
"""

from dataclasses import replace

import torch
from torch import Tensor

from bertwright.models.model import Model
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.objective import Objective, combined_visibility


def final_objectives(model: Model) -> list[Objective]:
    """Return the objectives of the last training phase; empty if the recipe names none."""
    recipe = model.recipe
    return list(recipe.objectives_of(len(recipe.phases) - 1).values()) if recipe.objectives else []


def final_objective(model: Model, prediction: str) -> Objective | None:
    """Return the first objective of the last phase with this kind of prediction; None if none."""
    objectives = final_objectives(model)
    return next((o for o in objectives if o.capabilities.prediction == prediction), None)


def masked_hidden_states(
    model: Model,
    token_ids: Tensor,
    token_info: TokenInfo,
    is_masked: Tensor,
    positions: Tensor,
    mask_id: int,
) -> Tensor:
    """Return hidden states (B, M, D) that predict the tokens at ``positions`` (B, M) int64.

    The result does not depend on the tokens where ``is_masked`` (B, L) bool is True.
    """
    if (permutation := final_objective(model, "permutation")) is not None:
        extended = torch.cat((token_ids, torch.zeros_like(positions)), 1)
        visibility = model.encoder.visibility & combined_visibility([permutation])
        extended_info = _with_query_stream(token_info, is_masked, positions)
        return model(extended, extended_info, visibility)[:, token_ids.shape[1] :]
    masked_lm = final_objective(model, "masked")
    shift = 0 if masked_lm is None else masked_lm.prediction_shift
    hidden_states = model(token_ids.masked_fill(is_masked, mask_id), token_info)
    index = (positions - shift)[..., None].expand(-1, -1, hidden_states.shape[-1])
    return hidden_states.gather(1, index)


def _with_query_stream(token_info: TokenInfo, is_masked: Tensor, positions: Tensor) -> TokenInfo:
    """Append query tokens that predict the tokens at ``positions`` (B, M)."""

    def append_queries(values: Tensor) -> Tensor:
        values = values.expand(is_masked.shape)
        return torch.cat((values, values.gather(1, positions)), 1)

    extended = replace(
        token_info,
        position_ids=token_info.resolved_position_ids,
        factorisation_order=is_masked.long(),
    ).map(append_queries)
    index = torch.arange(is_masked.shape[1] + positions.shape[1], device=positions.device)[None]
    is_query = (index >= is_masked.shape[1]).expand(len(is_masked), -1)
    return replace(extended, index=index, is_query_stream=is_query)
