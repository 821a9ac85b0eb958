"""The head of tasks whose outputs are texts: none, since the decoder reads the hidden states."""

from typing import ClassVar, Literal

from torch import nn

from bertwright.modules.attention.mask import is_causal
from bertwright.recipes import Recipe
from bertwright.tasks.heads.head import HeadConfig, TaskHeadContext, Trunk
from bertwright.tasks.heads.pooling import HeadPooling


class DecoderHeadConfig(HeadConfig):
    """No new parameters: the pre-trained decoder attends to all hidden states of the last layer.

    The pre-trained LM head maps the hidden states of the decoder to tokens.
    """

    kind: Literal["decoder"] = "decoder"
    pooling: HeadPooling = "all"
    uses_lm_head: ClassVar[bool] = True

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        return nn.Identity(), width, (0.0, 0.0)


def check_decoder(recipe: Recipe) -> str | None:
    """Return why a model cannot generate texts with a decoder; None if it can."""
    objectives = recipe.objectives.values()
    if recipe.decoder is None or all(o.decoder_noising is None for o in objectives):
        return (
            f"{recipe.name} has no decoder with an LM head: choose an encoder-decoder, such as t5, "
            f"bart, mass or transformer"
        )
    if is_causal(recipe.encoder.visibility):
        return f"{recipe.name} has a causal encoder: choose another encoder-decoder"
    return None
