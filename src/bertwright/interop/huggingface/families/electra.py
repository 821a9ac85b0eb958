"""ELECTRA (Clark et al. 2020): BERT's encoder with a factorised embedding and two kinds of head."""

from typing import Any

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.bert import (
    CONFIG_KEYS,
    ENCODER_TABLE,
    FIXED_AXES,
    Bert,
)
from bertwright.interop.huggingface.families.config_keys import (
    ConfigKey,
    StockConfig,
    with_defaults,
)
from bertwright.interop.huggingface.head_types import (
    CLASSIFICATION_HEAD_TABLE,
    PRETRAINING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_AND_SPAN_HEADS,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.recipes import Recipe

EMBEDDING_SIZE_KEY = ConfigKey("embedding_size", "encoder.embeddings.width", 128)


class Electra(Bert):
    """ELECTRA: discriminator ``ElectraForPreTraining`` and generator ``ElectraForMaskedLM``.

    No stock class has both, so a model with both is exported without its generator.
    """

    model_type = "electra"
    class_name = "Electra"
    recipe_name = "electra"
    objective_head_types = {(False, "replaced-token"): PRETRAINING}
    stock_output_names = {"replaced-token": "logits"}
    base_model_prefix = "electra"
    encoder_table = (
        ("encoder.embeddings.up_projection", ("embeddings_project",)),
        *(row for row in ENCODER_TABLE if row[0] != "pooler"),
    )
    head_table = (
        ("output.transform.dense", ("generator_predictions.dense",)),
        ("output.transform.norm", ("generator_predictions.LayerNorm",)),
        ("output.bias", ("generator_lm_head.bias",)),
        ("output.table", ("generator_lm_head",)),
        ("heads.replaced-token.dense", ("discriminator_predictions.dense",)),
        ("heads.replaced-token.logit", ("discriminator_predictions.dense_prediction",)),
    )
    task_heads = TOKEN_AND_SPAN_HEADS | {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("dense",), ("first",), CLASSIFICATION_HEAD_TABLE, "gelu"
        ),
    }
    config_keys = (
        *with_defaults(CONFIG_KEYS, hidden_size=256, num_attention_heads=4, intermediate_size=1024),
        EMBEDDING_SIZE_KEY,
    )
    fixed_axes = FIXED_AXES | {
        "encoder.embeddings.kind": ("factorised", "tokens"),
        "output.activation": ("gelu",),
    }

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        """Return a mismatch if the activation is not GELU, which the stock head always uses."""
        kind: str = recipe.encoder.feed_forward.kind  # type: ignore[attr-defined]
        is_discriminator = any(
            o.capabilities.detects_replacements for o in recipe.objectives.values()
        )
        if is_discriminator and kind != "gelu":
            return [f"encoder.feed_forward.kind is {kind} (Electra: gelu, as in its head)"]
        return []

    def import_tensors(self, tensors: StateDict, config: StockConfig) -> StateDict:
        activation = config.get("hidden_act", "gelu")
        if activation != "gelu" and any(n.startswith("heads.replaced-token.") for n in tensors):
            raise UserError(
                f"hidden_act is {activation!r}, which the discriminator head uses as well: only "
                f"gelu is supported"
            )
        return super().import_tensors(tensors, config)

    def adjust_recipe(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Replace a factorised embedding with the encoder's width by a plain one."""
        encoder = settings["encoder"]
        if encoder["embeddings"]["width"] == encoder["width"]:
            encoder["embeddings"]["kind"] = "tokens"
            del encoder["embeddings"]["width"]
        return settings
