"""T5 (Raffel et al. 2020): version 1.0; version 1.1 with gated feed-forwards and untied output."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.interop.huggingface.families.config_keys import (
    COMMON_AXES,
    UNSUPPORTED_AXES,
    ConfigKey,
    StockConfig,
    without,
)
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    CONDITIONAL_GENERATION,
    EncoderModel,
)
from bertwright.interop.huggingface.tensor_names import StateDict, TensorNameTable
from bertwright.interop.huggingface.weights import STATED_TIE_KEY
from bertwright.recipes import Recipe


def _stack_table(stack: str, feed_forward_index: int) -> TensorNameTable:
    """Return the tensor names of a stack whose feed-forward is sublayer ``feed_forward_index``."""
    block, layer = f"{stack}.blocks.#", f"{stack}.block.#.layer"
    ours_attention, ours_feed_forward = (
        f"{block}.sublayers.{name}" for name in ("attention", "feed_forward")
    )
    attention, feed_forward = (
        f"{layer}.0.SelfAttention",
        f"{layer}.{feed_forward_index}.DenseReluDense",
    )
    bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        (f"{stack}.embeddings.positions.table", (bias,)),
        (f"{ours_attention}.projection", tuple(f"{attention}.{n}" for n in "qkv")),
        (f"{ours_attention}.output", (f"{attention}.o",)),
        (f"{block}.norms.attention", (f"{layer}.0.layer_norm",)),
        (f"{ours_feed_forward}.up", (f"{feed_forward}.wi",)),
        (f"{ours_feed_forward}.up", (f"{feed_forward}.wi_0", f"{feed_forward}.wi_1")),
        (f"{ours_feed_forward}.down", (f"{feed_forward}.wo",)),
        (f"{block}.norms.feed_forward", (f"{layer}.{feed_forward_index}.layer_norm",)),
        (f"{stack}.norm", (f"{stack}.final_layer_norm",)),
    )


CROSS_ATTENTION_BLOCK = "decoder.blocks.#.sublayers.cross_attention"
STOCK_CROSS_ATTENTION = "decoder.block.#.layer.1"
CROSS_ATTENTION_TABLE: TensorNameTable = (
    (f"{CROSS_ATTENTION_BLOCK}.projection", (f"{STOCK_CROSS_ATTENTION}.EncDecAttention.q",)),
    (
        f"{CROSS_ATTENTION_BLOCK}.key_value",
        tuple(f"{STOCK_CROSS_ATTENTION}.EncDecAttention.{n}" for n in "kv"),
    ),
    (f"{CROSS_ATTENTION_BLOCK}.output", (f"{STOCK_CROSS_ATTENTION}.EncDecAttention.o",)),
    ("decoder.blocks.#.norms.cross_attention", (f"{STOCK_CROSS_ATTENTION}.layer_norm",)),
)
BUCKET_KEYS: tuple[tuple[str, str, int], ...] = (
    ("relative_attention_num_buckets", "buckets", 32),
    ("relative_attention_max_distance", "longest", 128),
)


ACTIVATION_NAMES = {
    "gated-gelu": ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh"),
    "gated-silu": ("silu", "swish"),
}
"""Names of the activation function of a gated feed-forward, by ``feed_forward_proj``."""


def _require_stated_activation(config: StockConfig) -> None:
    """Raise UserError for keys about the activation that contradict ``feed_forward_proj``."""
    projection = str(config.get("feed_forward_proj", "relu"))
    is_gated = projection.startswith("gated-")
    if config.get("is_gated_act", is_gated) != is_gated:
        raise UserError(
            f"is_gated_act is {config['is_gated_act']}, which contradicts feed_forward_proj "
            f"{projection!r}"
        )
    activations = ACTIVATION_NAMES.get(projection, (projection.removeprefix("gated-"),))
    if config.get("dense_act_fn", activations[0]) not in activations:
        raise UserError(
            f"dense_act_fn is {quote(config['dense_act_fn'])}: with feed_forward_proj "
            f"{projection!r} supported is {activations[0]!r}"
        )


class EncoderDecoderFamily(ModelFamily):
    """An encoder and a decoder, trained by denoising."""

    lm_head_type = CONDITIONAL_GENERATION
    lm_objective = "denoising"
    default_start_role: ClassVar[str]
    """Role of the token that starts the decoder, unless the denoising objective sets one."""

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        return {**config, "is_encoder_decoder": True}

    def token_roles(self, recipe: Recipe) -> Mapping[str, str]:
        noisings = (objective.decoder_noising for objective in recipe.objectives.values())
        role = next((n.begins for n in noisings if n is not None), self.default_start_role)
        return {**self.token_id_keys, "decoder_start_token_id": role}


class T5(EncoderDecoderFamily):
    """Two stacks without biases; each stack's first block holds the relative position biases."""

    model_type = "t5"
    class_name = "T5"
    recipe_name = "t5"
    default_start_role = "pad"
    base_model_prefix = "encoder"
    encoder_table = (
        ("encoder.embeddings.tokens", ("shared",)),
        *_stack_table("encoder", 1),
        *_stack_table("decoder", 2),
        *CROSS_ATTENTION_TABLE,
    )
    head_table = (("output.table", ("lm_head",)),)
    embedding_aliases = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    ignored_tensors = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)
    default_max_length = 512
    token_id_keys = {"pad_token_id": "pad", "eos_token_id": "end"}
    config_keys = (
        ConfigKey("d_model", "encoder.width", 512),
        ConfigKey("num_layers", "encoder.depth.layers", 6),
        ConfigKey("num_decoder_layers", "decoder.layers", None),
        ConfigKey("num_heads", "encoder.mixer.heads", 8),
        ConfigKey("d_kv", "encoder.mixer.head_width", 64),
        ConfigKey("d_ff", "encoder.feed_forward.width", 2048),
        ConfigKey(
            "feed_forward_proj",
            "encoder.feed_forward.kind",
            "relu",
            {"relu": "relu", "gated-gelu": "geglu-tanh", "gated-silu": "swiglu"},
        ),
        ConfigKey("layer_norm_epsilon", "encoder.norm.epsilon", 1e-6),
        ConfigKey("dropout_rate", "encoder.dropout", 0.1),
        ConfigKey("dropout_rate", "encoder.mixer.dropout", 0.1),
        ConfigKey("dropout_rate", "encoder.feed_forward.dropout", 0.1),
        ConfigKey("dropout_rate", "encoder.output_dropout", 0.1),
        ConfigKey("scale_decoder_outputs", "output.scaled", True),
        *(
            ConfigKey(theirs, f"{stack}.positions.{ours}", default)
            for stack in ("encoder", "decoder")
            for theirs, ours, default in BUCKET_KEYS
        ),
    )
    fixed_axes = without(COMMON_AXES, "encoder.norm.bias") | {
        "encoder.embeddings.norm": (False,),
        "encoder.embeddings.segments": (0,),
        "encoder.positions.kind": ("bucketed",),
        "encoder.positions.one_sided": (False,),
        "encoder.positions.gated": (False,),
        "encoder.visibility.kind": ("bidirectional",),
        "encoder.mixer.bias": (False,),
        "encoder.mixer.scaled": (False,),
        "encoder.feed_forward.bias": (False,),
        "encoder.norm.kind": ("rmsnorm",),
        "encoder.norm.placement": ("pre",),
        "decoder.kind": ("transformer",),
        "decoder.source": ("tokens",),
        "decoder.tied": (False,),
        "decoder.order": ("scf",),
        "decoder.positions.kind": ("bucketed",),
        "decoder.positions.one_sided": (True,),
        "decoder.positions.gated": (False,),
        "output.transform": (False,),
        "output.bias": (False,),
    }
    unsupported_axes = without(UNSUPPORTED_AXES, "encoder.mixer.width")

    def name_table(self, head_type: str) -> TensorNameTable:
        return self.encoder_table + self.head_table

    def normalise_config(self, config: StockConfig) -> StockConfig:
        _require_stated_activation(config)
        # Whether the output is scaled depends on the stated tie, even if the tables differ.
        stated = config.get(STATED_TIE_KEY, config.get("tie_word_embeddings", True))
        return {"scale_decoder_outputs": stated, **config}

    def adjust_recipe(self, settings: dict[str, Any]) -> dict[str, Any]:
        mixer = settings["encoder"]["mixer"]
        mixer["width"] = mixer["heads"] * mixer["head_width"]
        return settings

    def to_stock_shape(self, tensors: StateDict, model: EncoderModel) -> StateDict:
        if not model.recipe.encoder.feed_forward.is_gated:
            return tensors
        result: StateDict = {}
        for name, tensor in tensors.items():
            if name.endswith(".wi.weight"):
                stem = name.removesuffix(".weight")
                result[f"{stem}_0.weight"], result[f"{stem}_1.weight"] = tensor.chunk(2)
            else:
                result[name] = tensor
        return result
