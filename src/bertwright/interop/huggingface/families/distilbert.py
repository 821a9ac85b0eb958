"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler."""

from bertwright.interop.huggingface.families.bert import ACTIVATION_NAMES
from bertwright.interop.huggingface.families.config_keys import COMMON_AXES, ConfigKey
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    SEQUENCE_CLASSIFICATION,
    TOKEN_AND_SPAN_HEADS,
    StockTaskHead,
)

BLOCK, LAYER = "encoder.blocks.#", "transformer.layer.#"


class DistilBert(ModelFamily):
    """DistilBERT; the epsilon of its norms is fixed."""

    model_type = "distilbert"
    class_name = "DistilBert"
    recipe_name = "bert"
    base_model_prefix = "distilbert"
    encoder_table = (
        ("encoder.embeddings.tokens", ("embeddings.word_embeddings",)),
        ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
        ("encoder.embeddings.sum.norm", ("embeddings.LayerNorm",)),
        (
            f"{BLOCK}.sublayers.attention.projection",
            tuple(f"{LAYER}.attention.{name}_lin" for name in "qkv"),
        ),
        (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attention.out_lin",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.sa_layer_norm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ffn.lin1",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ffn.lin2",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.output_layer_norm",)),
    )
    head_table = (
        ("output.transform.dense", ("vocab_transform",)),
        ("output.transform.norm", ("vocab_layer_norm",)),
        ("output.bias", ("vocab_projector.bias",)),
        ("output.table", ("vocab_projector",)),
    )
    task_heads = TOKEN_AND_SPAN_HEADS | {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("dense",),
            ("first",),
            (("head.trunk.dense", ("pre_classifier",)), ("head.classifier", ("classifier",))),
            "relu",
        ),
    }
    default_max_length = 512
    config_keys = (
        ConfigKey("dim", "encoder.width", 768),
        ConfigKey("n_layers", "encoder.depth.layers", 6),
        ConfigKey("n_heads", "encoder.mixer.heads", 12),
        ConfigKey("hidden_dim", "encoder.feed_forward.width", 3072),
        ConfigKey("activation", "encoder.feed_forward.kind", "gelu", ACTIVATION_NAMES),
        ConfigKey("activation", "output.activation", "gelu", ACTIVATION_NAMES),
        ConfigKey("dropout", "encoder.dropout", 0.1),
        ConfigKey("attention_dropout", "encoder.mixer.dropout", 0.1),
        ConfigKey("max_position_embeddings", "encoder.positions.size", 512),
    )
    fixed_axes = COMMON_AXES | {
        "encoder.embeddings.segments": (0,),
        "encoder.positions.offset": (0,),
        "encoder.norm.epsilon": (1e-12,),
        "output.transform": (True,),
        "output.transform_bias": (True,),
        "output.bias": (True,),
    }
    required_config = {"sinusoidal_pos_embds": False}
