"""MobileBERT (Sun et al. 2020): narrow blocks, trigram embeddings, and no norms."""

from typing import Any

from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.bert import POOLER_HEAD, Bert
from bertwright.interop.huggingface.families.config_keys import (
    COMMON_AXES,
    ConfigKey,
    StockConfig,
    with_defaults,
    without,
)
from bertwright.interop.huggingface.families.electra import EMBEDDING_SIZE_KEY
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    MULTIPLE_CHOICE,
    POOLER,
    SEQUENCE_CLASSIFICATION,
    TOKEN_AND_SPAN_HEADS,
    EncoderModel,
    StockTaskHead,
    task_head_type,
)
from bertwright.interop.huggingface.tensor_names import StateDict, TensorNameTable
from bertwright.models import Model
from bertwright.recipes import Recipe

BLOCK, LAYER = "encoder.blocks.#", "encoder.layer.#"
ATTENTION = f"{BLOCK}.sublayers.attention"
FEED_FORWARD_NAMES = {
    "feed_forward": ("ffn.0.intermediate", "ffn.0.output"),
    "feed_forward_2": ("ffn.1.intermediate", "ffn.1.output"),
    "feed_forward_3": ("ffn.2.intermediate", "ffn.2.output"),
    "feed_forward_4": ("intermediate", "output"),
}
"""Our feed-forward sublayers in order, with the stock names of their two matrices."""

CLASSIFIERS = (SEQUENCE_CLASSIFICATION, MULTIPLE_CHOICE)

LINEAR_HEAD = StockTaskHead(("plain",), ("first",), (("head.classifier", ("classifier",)),))

EXTENDED_OUTPUT_NAME = "cls.predictions.dense.weight"
"""Name of the output matrix, stored as (width, tokens) unlike other tables."""


def _feed_forward_table() -> TensorNameTable:
    rows: list[tuple[str, tuple[str, ...]]] = []
    for ours, (up, down) in FEED_FORWARD_NAMES.items():
        rows += [
            (f"{BLOCK}.sublayers.{ours}.up", (f"{LAYER}.{up}.dense",)),
            (f"{BLOCK}.sublayers.{ours}.down", (f"{LAYER}.{down}.dense",)),
            (f"{BLOCK}.norms.{ours}", (f"{LAYER}.{down}.LayerNorm",)),
        ]
    return tuple(rows)


class MobileBert(Bert):
    """MobileBERT; all norms except the output norm are gains and biases without statistics.

    In the trigram of the last token, the stock class reads the padding that follows; our model
    reads zeros. The two agree for unpadded sequences and for a zero padding embedding, the stock
    class's initial value.
    """

    model_type = "mobilebert"
    class_name = "MobileBert"
    recipe_name = "mobilebert"
    base_model_prefix = "mobilebert"
    is_padding_sensitive = True
    transposed_tensors = (EXTENDED_OUTPUT_NAME,)
    encoder_table = (
        ("encoder.embeddings.tokens", ("embeddings.word_embeddings",)),
        ("encoder.embeddings.neighbour_projection.dense", ("embeddings.embedding_transformation",)),
        ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
        ("encoder.embeddings.segments", ("embeddings.token_type_embeddings",)),
        ("encoder.embeddings.sum.norm", ("embeddings.LayerNorm",)),
        (f"{BLOCK}.input_projection.dense", (f"{LAYER}.bottleneck.input.dense",)),
        (f"{BLOCK}.input_projection.norm", (f"{LAYER}.bottleneck.input.LayerNorm",)),
        (
            f"{ATTENTION}.projection.shared_projection.dense",
            (f"{LAYER}.bottleneck.attention.dense",),
        ),
        (
            f"{ATTENTION}.projection.shared_projection.norm",
            (f"{LAYER}.bottleneck.attention.LayerNorm",),
        ),
        (
            f"{ATTENTION}.projection.query_key",
            (f"{LAYER}.attention.self.query", f"{LAYER}.attention.self.key"),
        ),
        (f"{ATTENTION}.projection.value", (f"{LAYER}.attention.self.value",)),
        (f"{ATTENTION}.output", (f"{LAYER}.attention.output.dense",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.attention.output.LayerNorm",)),
        *_feed_forward_table(),
        (f"{BLOCK}.output_projection", (f"{LAYER}.output.bottleneck.dense",)),
        (f"{BLOCK}.norm", (f"{LAYER}.output.bottleneck.LayerNorm",)),
        ("pooler", ("pooler.dense",)),
    )
    head_table = (("output.table.weight", (EXTENDED_OUTPUT_NAME,)), *Bert.head_table)
    task_heads = TOKEN_AND_SPAN_HEADS | dict.fromkeys(CLASSIFIERS, POOLER_HEAD)
    tie_key = ConfigKey("tie_word_embeddings", "output.kind", True, {True: "extended"})
    config_keys = (
        *with_defaults(
            (key for key in Bert.config_keys if key.recipe_path != "encoder.norm.epsilon"),
            hidden_size=512,
            num_hidden_layers=24,
            num_attention_heads=4,
            intermediate_size=512,
            hidden_act="relu",
            hidden_dropout_prob=0.0,
        ),
        ConfigKey("intra_bottleneck_size", "encoder.bottleneck.width", 128),
        EMBEDDING_SIZE_KEY,
        ConfigKey("layer_norm_eps", "output.norm.epsilon", 1e-12),
    )
    fixed_axes = without(COMMON_AXES, "encoder.norm.bias") | {
        "encoder.depth.order": ("sffff",),
        "encoder.embeddings.kind": ("trigrams",),
        "encoder.positions.offset": (0,),
        "encoder.norm.kind": ("no-norm",),
        "output.transform": (True,),
        "output.transform_bias": (True,),
        "output.norm.kind": ("layernorm",),
        "output.norm.gain": (True,),
        "output.norm.bias": (True,),
        "output.bias": (True,),
    }
    required_config = {
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
        "num_feedforward_networks": 4,
        "normalization_type": "no_norm",
    }

    def export_tensors(self, model: EncoderModel) -> StateDict:
        return dict(model.named_parameters())

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        reasons: list[str] = []
        if recipe.encoder.bottleneck is None:
            reasons.append("encoder.bottleneck is null (MobileBert: the width of the blocks)")
        elif not recipe.encoder.bottleneck.shared:
            reasons.append("encoder.bottleneck.shared is false (MobileBert: true)")
        if recipe.encoder.embeddings.segments == 0:
            reasons.append("encoder.embeddings.segments is 0 (MobileBert: at least 1)")
        return reasons

    def variant_of_config(self, config: StockConfig) -> ModelFamily:
        return self if config.get("classifier_activation", True) else LINEAR_MOBILE_BERT

    def variant_of_model(self, model: EncoderModel) -> ModelFamily:
        if isinstance(model, Model):
            pairs = model.recipe.objectives.get("next-sentence")
            is_linear = not getattr(pairs, "dense", True)
        else:
            kind = model.head_config.kind_name()
            is_linear = kind == "plain" and task_head_type(model) in CLASSIFIERS
        return LINEAR_MOBILE_BERT if is_linear else self


class LinearMobileBert(MobileBert):
    """MobileBERT as released: heads on sequences have no dense layer."""

    encoder_table = tuple(row for row in MobileBert.encoder_table if row[0] != POOLER)
    task_heads = TOKEN_AND_SPAN_HEADS | dict.fromkeys(CLASSIFIERS, LINEAR_HEAD)
    required_config = {**MobileBert.required_config, "classifier_activation": False}

    def variant_of_config(self, config: StockConfig) -> ModelFamily:
        return self

    def objective_settings(self) -> dict[str, dict[str, Any]]:
        return {"next-sentence": {"dense": False}}

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        return {**config, "classifier_activation": False}


LINEAR_MOBILE_BERT = LinearMobileBert()
