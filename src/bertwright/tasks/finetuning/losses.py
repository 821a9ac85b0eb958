"""An auxiliary language-model loss for causal encoders (Radford et al. 2018, section 3.2)."""

from collections.abc import Sequence

from torch import Tensor

from bertwright.models.text_model import TextModel
from bertwright.modules.attention.mask import is_causal, is_split_by_direction
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.objectives.model_output import Loss
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.heads.head import HeadConfig

NEXT_TOKENS = "next-tokens"
"""Name of the loss."""


def check_language_model(
    model: TextModel, config: FineTuningConfig, heads: Sequence[HeadConfig]
) -> str | None:
    """Return why a model and settings do not allow the loss; None if they do."""
    recipe = model.model.recipe
    visibility = recipe.encoder.visibility
    if model.model.output is None or not is_causal(visibility) or is_split_by_direction(visibility):
        return f"language_model: {recipe.name} is not a causal language model: leave it at 0"
    if config.adaptation.is_parameter_efficient:
        return "language_model trains the encoder: choose adaptation full, last or gradual"
    if config.perturbation is not None:
        return "language_model and perturbation cannot be combined: leave one of them out"
    if any(
        head.resolve_layers(recipe).indices[-1] != len(recipe.encoder.hidden_widths) - 1
        for head in heads
    ):
        return "language_model reads the last layer, which head.layers leaves out"
    return None


def next_token_loss(
    lm_head: LMHead,
    embedding_table: Tensor,
    hidden_states: Tensor,
    token_ids: Tensor,
    document_ids: Tensor,
) -> Loss:
    """Return the next-token loss of hidden_states (B, L, D).

    token_ids, document_ids: (B, L) int64; padding has document -1.
    """
    has_next = document_ids[:, 1:] >= 0
    targets = token_ids[:, 1:][has_next]
    loss, num_correct = lm_head.loss(
        hidden_states[:, :-1][has_next], embedding_table, targets, None
    )
    return Loss(loss, float(len(targets)), num_correct)
