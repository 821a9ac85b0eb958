"""BERT (Devlin et al. 2019): ``BertModel`` and the stock classes around it."""

from typing import Any

import torch

from bertwright.interop.huggingface.families.config_keys import COMMON_AXES, ConfigKey, StockConfig
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    MULTIPLE_CHOICE,
    PRETRAINING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_AND_SPAN_HEADS,
    EncoderModel,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import StateDict, TensorNameTable
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.recipes import Recipe

BLOCK, LAYER = "encoder.blocks.#", "encoder.layer.#"

ENCODER_TABLE: TensorNameTable = (
    ("encoder.embeddings.tokens", ("embeddings.word_embeddings",)),
    ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
    ("encoder.embeddings.segments", ("embeddings.token_type_embeddings",)),
    ("encoder.embeddings.sum.norm", ("embeddings.LayerNorm",)),
    (
        f"{BLOCK}.sublayers.attention.projection",
        (
            f"{LAYER}.attention.self.query",
            f"{LAYER}.attention.self.key",
            f"{LAYER}.attention.self.value",
        ),
    ),
    (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attention.output.dense",)),
    (f"{BLOCK}.norms.attention", (f"{LAYER}.attention.output.LayerNorm",)),
    (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.intermediate.dense",)),
    (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.output.dense",)),
    (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.output.LayerNorm",)),
    ("pooler", ("pooler.dense",)),
)

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}

CONFIG_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("hidden_size", "encoder.width", 768),
    ConfigKey("num_hidden_layers", "encoder.depth.layers", 12),
    ConfigKey("num_attention_heads", "encoder.mixer.heads", 12),
    ConfigKey("intermediate_size", "encoder.feed_forward.width", 3072),
    ConfigKey("hidden_act", "encoder.feed_forward.kind", "gelu", ACTIVATION_NAMES),
    ConfigKey("layer_norm_eps", "encoder.norm.epsilon", 1e-12),
    ConfigKey("hidden_dropout_prob", "encoder.dropout", 0.1),
    ConfigKey("attention_probs_dropout_prob", "encoder.mixer.dropout", 0.1),
    ConfigKey("max_position_embeddings", "encoder.positions.size", 512),
    ConfigKey("type_vocab_size", "encoder.embeddings.segments", 2),
)

FIXED_AXES = COMMON_AXES | {
    "encoder.mixer.bias": (True, False),
    "encoder.feed_forward.bias": (True, False),
    "encoder.norm.bias": (True, False),
    "output.transform": (True,),
    "output.transform_bias": (True, False),
    "output.bias": (True, False),
}

POOLER_HEAD = StockTaskHead(
    ("pooler", "dense"),
    ("first",),
    (("head.trunk.dense", ("{prefix}.pooler.dense",)), ("head.classifier", ("classifier",))),
)


class Bert(ModelFamily):
    """BERT: post-norm, learned positions, and a transform before the output layer.

    Biases and segments that a recipe leaves out are exported as zeros; rows of the position table
    before the offset are dropped.
    """

    model_type = "bert"
    class_name = "Bert"
    recipe_name = "bert"
    objective_head_types = {
        (True, "next-sentence"): PRETRAINING,
        (False, "next-sentence"): "ForNextSentencePrediction",
    }
    stock_output_names = {"next-sentence": "seq_relationship_logits"}
    base_model_prefix = "bert"
    encoder_table = ENCODER_TABLE
    head_table = (
        ("output.transform.dense", ("cls.predictions.transform.dense",)),
        ("output.transform.norm", ("cls.predictions.transform.LayerNorm",)),
        ("output.bias", ("cls.predictions.bias",)),
        ("output.table", ("cls.predictions.decoder",)),
        ("heads.next-sentence.classifier", ("cls.seq_relationship",)),
    )
    task_heads = TOKEN_AND_SPAN_HEADS | {
        SEQUENCE_CLASSIFICATION: POOLER_HEAD,
        MULTIPLE_CHOICE: POOLER_HEAD,
    }
    default_max_length = 512
    config_keys = (
        *CONFIG_KEYS,
        ConfigKey("hidden_act", "output.activation", "gelu", ACTIVATION_NAMES),
    )
    fixed_axes = FIXED_AXES
    required_config = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    }

    def objective_settings(self) -> dict[str, dict[str, Any]]:
        return {"next-sentence": {"dense": True}}

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        return {**config, "type_vocab_size": max(1, config["type_vocab_size"])}

    def export_tensors(self, model: EncoderModel) -> StateDict:
        tensors = add_zero_parameters(model)
        positions = "encoder.embeddings.positions.table.weight"
        unused = model.recipe.encoder.positions.offset  # type: ignore[attr-defined]
        return {**tensors, positions: tensors[positions][unused:]}


def add_zero_parameters(model: EncoderModel) -> StateDict:
    """Return the parameters of a model, with zeros for missing biases and segments."""
    tensors: StateDict = dict(model.named_parameters())
    table = model.encoder.embeddings.table
    tensors.setdefault("encoder.embeddings.segments.weight", torch.zeros(1, table.shape[1]))
    if any(name.startswith("output.") for name in tensors):
        tensors.setdefault("output.bias", torch.zeros(len(table)))
    for name, role in get_parameter_roles(model).items():
        if role.kind in ("matrix", "norm") and name.endswith(".weight"):
            bias = name.removesuffix("weight") + "bias"
            tensors.setdefault(bias, torch.zeros(len(tensors[name])))
    return tensors
