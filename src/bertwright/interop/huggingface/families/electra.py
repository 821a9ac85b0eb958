"""ELECTRA (Clark et al. 2020): BERT's encoder with a factorised embedding and two kinds of head."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.bert import (
    CONFIG_KEYS,
    ENCODER_TABLE,
    FIXED_AXES,
    Bert,
)
from bertwright.interop.huggingface.families.family import ConfigKey, StockConfig
from bertwright.interop.huggingface.head_types import (
    BASE,
    CLASSIFICATION_HEAD_TABLE,
    MASKED_LM,
    PRETRAINING,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.recipes import Recipe

EMBEDDING_SIZE_KEY = ConfigKey("embedding_size", "encoder.embeddings.width", 128)

OVERRIDDEN_KEYS = ("hidden_size", "num_attention_heads", "intermediate_size")


class Electra(Bert):
    """Discriminator ``ElectraForPreTraining`` and generator ``ElectraForMaskedLM``.

    No stock class has both, so a model with both is exported without its generator.
    """

    model_type = "electra"
    class_name = "Electra"
    recipe_name = "electra"
    pretraining_head_types: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (False, "replaced-token"): PRETRAINING,
        (True, None): MASKED_LM,
        (False, None): BASE,
    }
    stock_output_names: ClassVar[Mapping[str, str]] = {"replaced-token": "logits"}
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
    task_heads: ClassVar[dict[str, StockTaskHead]] = {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("dense",), ("first",), CLASSIFICATION_HEAD_TABLE, "gelu"
        ),
        TOKEN_CLASSIFICATION: Bert.task_heads[TOKEN_CLASSIFICATION],
        QUESTION_ANSWERING: Bert.task_heads[QUESTION_ANSWERING],
    }
    output_layer_name = "generator_lm_head"
    output_bias_name = "generator_lm_head.bias"
    config_keys = (
        *(key for key in CONFIG_KEYS if key.stock_key not in OVERRIDDEN_KEYS),
        ConfigKey("hidden_size", "encoder.width", 256),
        ConfigKey("num_attention_heads", "encoder.mixer.heads", 4),
        ConfigKey("intermediate_size", "encoder.feed_forward.width", 1024),
        EMBEDDING_SIZE_KEY,
    )
    fixed_axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **FIXED_AXES,
        "encoder.embeddings.kind": ("factorised", "tokens"),
        "output.activation": ("gelu",),
    }

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        """Return a mismatch for another activation than GELU, which the stock head also uses."""
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
        """Replace a factorised embedding of the encoder's width by a plain one."""
        encoder = settings["encoder"]
        if encoder["embeddings"]["width"] == encoder["width"]:
            encoder["embeddings"]["kind"] = "tokens"
            del encoder["embeddings"]["width"]
        return settings
