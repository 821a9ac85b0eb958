"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions, gated feed-forwards."""

from typing import Any

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.interop.huggingface.families.config_keys import (
    BOS_EOS_PAD,
    COMMON_AXES,
    ConfigKey,
    StockConfig,
)
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    CLASSIFIER_POOLINGS,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
    StockTaskHead,
)
from bertwright.interop.huggingface.tensor_names import TensorNameTable
from bertwright.recipes import Recipe

BLOCK, LAYER = "encoder.blocks.#", "layers.#"
FULL_ATTENTION, SLIDING_ATTENTION = "full_attention", "sliding_attention"
ROPE_BASES = {FULL_ATTENTION: 160_000.0, SLIDING_ATTENTION: 10_000.0}
"""Default rotary bases of the stock class."""

LEGACY_ROPE_KEYS = {FULL_ATTENTION: "global_rope_theta", SLIDING_ATTENTION: "local_rope_theta"}
"""The keys of the rotary bases in Transformers 4.48."""

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
}


TASK_HEAD_TABLE: TensorNameTable = (
    ("head.trunk.dense", ("head.dense",)),
    ("head.trunk.norm", ("head.norm",)),
    ("head.classifier", ("classifier",)),
)


class ModernBert(ModelFamily):
    """ModernBERT: two rotary bases, one of them for layers with a sliding window.

    The stock class has dropout inside the feed-forward, our model after it; the rate is the same.
    """

    model_type = "modernbert"
    class_name = "ModernBert"
    recipe_name = "modern"
    base_model_prefix = "model"
    encoder_table = (
        ("encoder.embeddings.tokens", ("embeddings.tok_embeddings",)),
        ("encoder.embeddings.sum.norm", ("embeddings.norm",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.attn_norm",)),
        (f"{BLOCK}.sublayers.attention.projection", (f"{LAYER}.attn.Wqkv",)),
        (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attn.Wo",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.mlp_norm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.mlp.Wi",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.mlp.Wo",)),
        ("encoder.norm", ("final_norm",)),
    )
    head_table = (
        ("output.transform.dense", ("head.dense",)),
        ("output.transform.norm", ("head.norm",)),
        ("output.bias", ("decoder.bias",)),
        ("output.table", ("decoder",)),
    )
    task_heads = {
        SEQUENCE_CLASSIFICATION: StockTaskHead(
            ("transform",), tuple(CLASSIFIER_POOLINGS.values()), TASK_HEAD_TABLE
        ),
        TOKEN_CLASSIFICATION: StockTaskHead(("transform",), ("positions",), TASK_HEAD_TABLE),
        QUESTION_ANSWERING: StockTaskHead(("transform",), ("positions",), TASK_HEAD_TABLE),
    }
    default_max_length = 8192
    token_id_keys = BOS_EOS_PAD | {
        "cls_token_id": "start",
        "sep_token_id": "end",
    }
    config_keys = (
        ConfigKey("hidden_size", "encoder.width", 768),
        ConfigKey("num_hidden_layers", "encoder.depth.layers", 22),
        ConfigKey("num_attention_heads", "encoder.mixer.heads", 12),
        ConfigKey("attention_bias", "encoder.mixer.bias", False),
        ConfigKey("attention_dropout", "encoder.mixer.dropout", 0.0),
        ConfigKey("intermediate_size", "encoder.feed_forward.width", 1152),
        ConfigKey(
            "hidden_activation",
            "encoder.feed_forward.kind",
            "gelu",
            {"gelu": "geglu", "silu": "swiglu"},
        ),
        ConfigKey("mlp_bias", "encoder.feed_forward.bias", False),
        ConfigKey("mlp_dropout", "encoder.dropout", 0.0),
        ConfigKey("norm_eps", "encoder.norm.epsilon", 1e-5),
        ConfigKey("norm_bias", "encoder.norm.bias", False),
        ConfigKey("rope_theta", "encoder.positions.base", ROPE_BASES[FULL_ATTENTION]),
        ConfigKey("sliding_window", "encoder.sliding_window", None),
        ConfigKey("classifier_activation", "output.activation", "gelu", ACTIVATION_NAMES),
        ConfigKey("classifier_bias", "output.transform_bias", False),
        ConfigKey("decoder_bias", "output.bias", True),
    )
    fixed_axes = COMMON_AXES | {
        "encoder.embeddings.segments": (0,),
        "encoder.positions.kind": ("rotary",),
        "encoder.visibility.kind": ("document", "bidirectional"),
        "encoder.norm.placement": ("pre",),
        "encoder.norm.skip_first": (True,),
        "output.transform": (True,),
    }

    def normalise_config(self, config: StockConfig) -> StockConfig:
        num_layers = config.get("num_hidden_layers", 22)
        every = config.get("global_attn_every_n_layers", 3)
        layer_types = config.get("layer_types") or [
            SLIDING_ATTENTION if index % every else FULL_ATTENTION for index in range(num_layers)
        ]
        for rope in (
            _rope_settings(config, FULL_ATTENTION),
            _rope_settings(config, SLIDING_ATTENTION),
        ):
            rope_type = rope.get("rope_type", rope.get("type", "default"))
            if rope_type != "default":
                raise UserError(f"rope_type is {rope_type!r}: supported is 'default'")
        return {
            **config,
            "rope_theta": _rope_base(config, FULL_ATTENTION),
            "sliding_window": _sliding_window(config, layer_types),
        }

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        """Write layer types and rotary bases in the forms of both Transformers 5 and 4.48."""
        config = dict(config)
        base, _ = config.pop("rope_theta"), config.pop("sliding_window")
        lengths = [recipe.input_format_of(phase).length for phase in range(len(recipe.phases))]
        window = recipe.encoder.sliding_window
        local_base = base if window is None or window.base is None else window.base
        return {
            **config,
            "layer_types": [
                SLIDING_ATTENTION
                if window is not None and window.applies_to(index)
                else FULL_ATTENTION
                for index in range(config["num_hidden_layers"])
            ],
            "global_attn_every_n_layers": 1 if window is None else window.every,
            "local_attention": 128 if window is None else 2 * window.window,
            "rope_parameters": {
                FULL_ATTENTION: {"rope_type": "default", "rope_theta": base},
                SLIDING_ATTENTION: {"rope_type": "default", "rope_theta": local_base},
            },
            "global_rope_theta": base,
            "local_rope_theta": local_base,
            "max_position_embeddings": max(lengths),
            "embedding_dropout": config["mlp_dropout"],
        }


def _sliding_window(config: StockConfig, layer_types: list[str]) -> dict[str, Any] | None:
    """Return the layers with a sliding window as a recipe axis; UserError if they are irregular."""
    if SLIDING_ATTENTION not in layer_types:
        return None
    full_layers = [index for index, kind in enumerate(layer_types) if kind == FULL_ATTENTION]
    every = full_layers[1] if len(full_layers) > 1 else len(layer_types)
    if layer_types != [
        SLIDING_ATTENTION if index % every else FULL_ATTENTION for index in range(len(layer_types))
    ]:
        raise UserError("layer_types must have full attention in every n-th layer")
    return {
        "every": every,
        "window": config.get("local_attention", 128) // 2,
        "base": _rope_base(config, SLIDING_ATTENTION),
    }


def _rope_settings(config: StockConfig, layer_type: str) -> dict[str, Any]:
    """Return the rotary settings of a layer type; settings for all layers are the defaults."""
    shared: dict[str, Any] = config.get("rope_parameters") or {}
    specific = shared.get(layer_type) or {}
    if not isinstance(specific, dict):
        raise UserError(f"rope_parameters.{layer_type} is {quote(specific)}: it must be an object")
    return {**shared, **specific, **(config.get("rope_scaling") or {})}


def _rope_base(config: StockConfig, layer_type: str) -> float | None:
    """Return the rotary base of a layer type; None for window layers means the global base."""
    return _rope_settings(config, layer_type).get(
        "rope_theta", config.get(LEGACY_ROPE_KEYS[layer_type], ROPE_BASES[layer_type])
    )
