"""BART (Lewis et al. 2020): an encoder and a decoder of BERT's blocks."""

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.families.config_keys import (
    BOS_EOS_PAD,
    COMMON_AXES,
    ConfigKey,
    StockConfig,
)
from bertwright.interop.huggingface.families.t5 import EncoderDecoderFamily
from bertwright.interop.huggingface.head_types import (
    EncoderModel,
)
from bertwright.interop.huggingface.tensor_names import StateDict, TensorNameTable
from bertwright.recipes import Recipe


def _stack_table(stack: str) -> TensorNameTable:
    block, layer = f"{stack}.blocks.#", f"{stack}.layers.#"
    ours_attention, ours_cross = (
        f"{block}.sublayers.attention",
        f"{block}.sublayers.cross_attention",
    )
    attention, cross = f"{layer}.self_attn", f"{layer}.encoder_attn"
    return (
        (f"{stack}.embeddings.positions.table", (f"{stack}.embed_positions",)),
        (f"{stack}.embeddings.sum.norm", (f"{stack}.layernorm_embedding",)),
        (f"{ours_attention}.projection", tuple(f"{attention}.{n}_proj" for n in "qkv")),
        (f"{ours_attention}.output", (f"{attention}.out_proj",)),
        (f"{block}.norms.attention", (f"{layer}.self_attn_layer_norm",)),
        (f"{ours_cross}.projection", (f"{cross}.q_proj",)),
        (f"{ours_cross}.key_value", tuple(f"{cross}.{n}_proj" for n in "kv")),
        (f"{ours_cross}.output", (f"{cross}.out_proj",)),
        (f"{block}.norms.cross_attention", (f"{layer}.encoder_attn_layer_norm",)),
        (f"{block}.sublayers.feed_forward.up", (f"{layer}.fc1",)),
        (f"{block}.sublayers.feed_forward.down", (f"{layer}.fc2",)),
        (f"{block}.norms.feed_forward", (f"{layer}.final_layer_norm",)),
    )


FINAL_LOGITS_BIAS = "final_logits_bias"
"""A buffer of zeros that training does not change; our model does not have it."""

PER_STACK_KEYS = ("attention_heads", "ffn_dim")
"""Config keys that must agree between the two stacks."""


class Bart(EncoderDecoderFamily):
    """Two stacks of BERT's blocks; positions begin at row 2 of the position tables."""

    model_type = "bart"
    class_name = "Bart"
    recipe_name = "bart"
    default_start_role = "end"
    base_model_prefix = "model"
    encoder_table = (
        ("encoder.embeddings.tokens", ("shared",)),
        *_stack_table("encoder"),
        *_stack_table("decoder"),
    )
    head_table = (("output.table", ("lm_head",)), (FINAL_LOGITS_BIAS, ("final_logits_bias",)))
    embedding_aliases = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    default_max_length = 1024
    token_id_keys = BOS_EOS_PAD | {"forced_eos_token_id": "end"}
    config_keys = (
        ConfigKey("d_model", "encoder.width", 1024),
        ConfigKey("encoder_layers", "encoder.depth.layers", 12),
        ConfigKey("decoder_layers", "decoder.layers", 12),
        *(
            ConfigKey(f"{stack}_attention_heads", "encoder.mixer.heads", 16)
            for stack in ("encoder", "decoder")
        ),
        *(
            ConfigKey(f"{stack}_ffn_dim", "encoder.feed_forward.width", 4096)
            for stack in ("encoder", "decoder")
        ),
        ConfigKey(
            "activation_function",
            "encoder.feed_forward.kind",
            "gelu",
            {"gelu": "gelu", "gelu_new": "gelu-tanh", "relu": "relu"},
        ),
        ConfigKey("dropout", "encoder.dropout", 0.1),
        ConfigKey("attention_dropout", "encoder.mixer.dropout", 0.0),
        ConfigKey("scale_embedding", "encoder.embeddings.scaled", False),
        ConfigKey("max_position_embeddings", "encoder.positions.size", 1024),
        ConfigKey("max_position_embeddings", "decoder.positions.size", 1024),
    )
    fixed_axes = COMMON_AXES | {
        "encoder.embeddings.segments": (0,),
        "encoder.positions.offset": (2,),
        "encoder.visibility.kind": ("bidirectional",),
        "encoder.norm.epsilon": (1e-5,),
        "decoder.kind": ("transformer",),
        "decoder.source": ("tokens",),
        "decoder.tied": (False,),
        "decoder.order": ("scf",),
        "decoder.positions.kind": ("learned",),
        "decoder.positions.offset": (2,),
        "output.transform": (False,),
        "output.bias": (False,),
    }

    def normalise_config(self, config: StockConfig) -> StockConfig:
        for name in PER_STACK_KEYS:
            encoder_value, decoder_value = (
                config.get(f"{stack}_{name}") for stack in ("encoder", "decoder")
            )
            if encoder_value != decoder_value:
                raise UserError(
                    f"encoder_{name} is {encoder_value!r} and decoder_{name} {decoder_value!r}: "
                    f"they must be equal"
                )
        return config

    def import_tensors(self, tensors: StateDict, config: StockConfig) -> StateDict:
        bias = tensors.pop(FINAL_LOGITS_BIAS, None)
        if bias is not None and bool(bias.any()):
            raise UserError("final_logits_bias is not 0: no bias is supported there")
        return tensors

    def to_stock_shape(self, tensors: StateDict, model: EncoderModel) -> StateDict:
        if "lm_head.weight" not in tensors:
            return tensors
        # With an untied output, the stock class also has a token embedding in each stack.
        shared = tensors["model.shared.weight"]
        return {**tensors, **{name: shared.clone() for name in self.embedding_aliases}}

    def standalone_mismatch(self, recipe: Recipe, max_length: int | None) -> str | None:
        return "BartModel returns the hidden states of its decoder"
