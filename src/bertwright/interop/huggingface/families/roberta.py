"""RoBERTa (Liu et al. 2019): BERT's encoder, with positions counted from after the padding id."""

from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.bert import (
    CONFIG_KEYS,
    FIXED_AXES,
    Bert,
    add_zero_parameters,
)
from bertwright.interop.huggingface.families.config_keys import BOS_EOS_PAD, ConfigKey, StockConfig
from bertwright.interop.huggingface.head_types import (
    CLASSIFICATION_HEAD_TABLE,
    SEQUENCE_CLASSIFICATION,
    EncoderModel,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.recipes import Recipe


class Roberta(Bert):
    """BERT with a position offset, a GELU output transform, and no objective on text pairs."""

    model_type = "roberta"
    class_name = "Roberta"
    recipe_name = "roberta"
    objective_head_types = {}
    base_model_prefix = "roberta"
    head_table = (
        ("output.transform.dense", ("lm_head.dense",)),
        ("output.transform.norm", ("lm_head.layer_norm",)),
        ("output.bias", ("lm_head.bias",)),
        ("output.table", ("lm_head.decoder",)),
    )
    task_heads = Bert.task_heads | {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("dense", "pooler"), ("first",), CLASSIFICATION_HEAD_TABLE
        )
    }
    token_id_keys = BOS_EOS_PAD
    config_keys = (*CONFIG_KEYS, ConfigKey("offset", "encoder.positions.offset", 2))
    fixed_axes = FIXED_AXES | {"output.activation": ("gelu",)}

    def normalise_config(self, config: StockConfig) -> StockConfig:
        padding = config.get("pad_token_id")
        offset = 2 if padding is None else padding + 1
        size = config.get("max_position_embeddings", 512) - offset
        return {**config, "offset": offset, "max_position_embeddings": size}

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        config = super().extend_config(config, recipe)
        config["max_position_embeddings"] += config.pop("offset")
        return config

    def export_tensors(self, model: EncoderModel) -> StateDict:
        return add_zero_parameters(model)

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        offset, expected = getattr(recipe.encoder.positions, "offset", None), special_tokens.pad + 1
        if offset == expected:
            return []
        return [
            f"encoder.positions.offset is {offset} (Roberta: the padding id plus 1, {expected})"
        ]


class XlmRoberta(Roberta):
    """RoBERTa with a vocabulary of a hundred languages (Conneau et al. 2020)."""

    model_type = "xlm-roberta"
    class_name = "XLMRoberta"
