"""XLM (Lample and Conneau 2019): post-norm, language embeddings, no output transform."""

from typing import Any

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.config_keys import (
    BOS_EOS_PAD,
    COMMON_AXES,
    ConfigKey,
    StockConfig,
)
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    SEQUENCE_CLASSIFICATION,
    TOKEN_HEAD,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.modules.attention.mask import Visibility
from bertwright.recipes import Recipe

BLOCK = "encoder.blocks.#"

SUMMARY: dict[str, Any] = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
}
"""Supported configurations of the sequence classification head."""


class Xlm(ModelFamily):
    """XLM; modules are listed by kind instead of by layer, and feed-forwards have 4x the width.

    The stock class adds language embeddings only if ``langs`` is passed.
    """

    model_type = "xlm"
    class_name = "XLM"
    recipe_name = "xlm"
    lm_head_type = "WithLMHeadModel"
    base_model_prefix = "transformer"
    encoder_table = (
        ("encoder.embeddings.tokens", ("embeddings",)),
        ("encoder.embeddings.positions.table", ("position_embeddings",)),
        ("encoder.embeddings.languages", ("lang_embeddings",)),
        ("encoder.embeddings.sum.norm", ("layer_norm_emb",)),
        (
            f"{BLOCK}.sublayers.attention.projection",
            tuple(f"attentions.#.{name}_lin" for name in "qkv"),
        ),
        (f"{BLOCK}.sublayers.attention.output", ("attentions.#.out_lin",)),
        (f"{BLOCK}.norms.attention", ("layer_norm1.#",)),
        (f"{BLOCK}.sublayers.feed_forward.up", ("ffns.#.lin1",)),
        (f"{BLOCK}.sublayers.feed_forward.down", ("ffns.#.lin2",)),
        (f"{BLOCK}.norms.feed_forward", ("layer_norm2.#",)),
    )
    head_table = (
        ("output.bias", ("pred_layer.proj.bias",)),
        ("output.table", ("pred_layer.proj",)),
    )
    task_heads = TOKEN_HEAD | {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("plain",), ("first",), (("head.classifier", ("sequence_summary.summary",)),)
        ),
    }
    published_special_tokens = {"mask": "<special1>"}
    default_max_length = 512
    token_id_keys = BOS_EOS_PAD | {
        "mask_token_id": "mask",
        "mask_index": "mask",
        "unk_index": "unknown",
    }
    config_keys = (
        ConfigKey("emb_dim", "encoder.width", 2048),
        ConfigKey("n_layers", "encoder.depth.layers", 12),
        ConfigKey("n_heads", "encoder.mixer.heads", 16),
        ConfigKey(
            "gelu_activation", "encoder.feed_forward.kind", True, {True: "gelu", False: "relu"}
        ),
        ConfigKey("layer_norm_eps", "encoder.norm.epsilon", 1e-12),
        ConfigKey("dropout", "encoder.dropout", 0.1),
        ConfigKey("attention_dropout", "encoder.mixer.dropout", 0.1),
        ConfigKey("max_position_embeddings", "encoder.positions.size", 512),
        ConfigKey("languages", "encoder.embeddings.languages", []),
    )
    fixed_axes = COMMON_AXES | {
        "encoder.embeddings.segments": (0,),
        "encoder.positions.offset": (0,),
        "output.transform": (False,),
        "output.transform_bias": (True, False),
        "output.bias": (True,),
    }
    required_config = {
        "sinusoidal_embeddings": False,
        "causal": False,
        "asm": False,
        "is_encoder": True,
    }

    def normalise_config(self, config: StockConfig) -> StockConfig:
        num_languages = config.get("n_langs", 1)
        ids: dict[str, int] = config.get("lang2id") or {str(n): n for n in range(num_languages)}
        has_embeddings = num_languages > 1 and config.get("use_lang_emb", True)
        languages = sorted(ids, key=lambda name: ids[name]) if has_embeddings else []
        return {**config, "languages": languages}

    def import_tensors(self, tensors: StateDict, config: StockConfig) -> StateDict:
        is_classifier = next(iter(config.get("architectures") or [""])).endswith(
            SEQUENCE_CLASSIFICATION
        )
        for name, value in SUMMARY.items():
            if is_classifier and config.get(name, value) != value:
                raise UserError(f"{name} is {config[name]!r}: supported is {value!r}")
        return tensors

    def usage_note(self, visibility: Visibility) -> str:
        return "`langs`: the language id at every position, if the model has languages"

    def standalone_mismatch(self, recipe: Recipe, max_length: int | None) -> str | None:
        return (
            super().standalone_mismatch(recipe, max_length)
            if recipe.encoder.embeddings.languages
            else None
        )

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        languages: list[str] = config.pop("languages")
        return {
            **config,
            **self.required_config,
            "n_langs": max(1, len(languages)),
            "use_lang_emb": bool(languages),
            "lang2id": {name: index for index, name in enumerate(languages)},
            "id2lang": {str(index): name for index, name in enumerate(languages)},
        }

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        encoder = recipe.encoder
        reasons: list[str] = []
        inner = encoder.feed_forward.inner_width(encoder.width)
        if inner != 4 * encoder.width:
            reasons.append(f"encoder.feed_forward.width is {inner} (XLM: {4 * encoder.width})")
        if len(encoder.embeddings.languages) == 1:
            reasons.append("encoder.embeddings.languages has one (XLM: none, or several)")
        return reasons
