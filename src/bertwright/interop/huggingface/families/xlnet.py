"""XLNet (Yang et al. 2019): only the content stream, which is all that fine-tuning uses."""

from bertwright.interop.huggingface.families.config_keys import (
    BOS_EOS_PAD,
    COMMON_AXES,
    ConfigKey,
    StockConfig,
    without,
)
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    CAUSAL_LM,
    TOKEN_HEAD,
    EncoderModel,
)
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.modules.attention.mask import PermutationVisibility
from bertwright.recipes import Recipe

BLOCK, LAYER = "encoder.blocks.#", "layer.#"
ATTENTION = f"{BLOCK}.sublayers.attention"

INTO_HEADS = tuple(f".rel_attn.{name}" for name in "qkvr")
"""Matrices stored as (width, heads, head width)."""

FROM_HEADS = (".rel_attn.o", ".r_w_bias", ".r_r_bias", ".r_s_bias", ".seg_embed")
"""Tensors whose last two dimensions are heads and head width."""


class XlNet(ModelFamily):
    """Relative attention whose matrices and biases are stored with a head dimension."""

    model_type = "xlnet"
    class_name = "XLNet"
    recipe_name = "xlnet"
    lm_head_type = CAUSAL_LM
    lm_objective = "permutation"
    visibility = PermutationVisibility()
    base_model_prefix = "transformer"
    encoder_table = (
        ("encoder.embeddings.tokens", ("word_embedding",)),
        ("encoder.embeddings.query_vector", ("mask_emb",)),
        (f"{ATTENTION}.projection.weight", tuple(f"{LAYER}.rel_attn.{name}" for name in "qkv")),
        (f"{ATTENTION}.output.weight", (f"{LAYER}.rel_attn.o",)),
        (f"{ATTENTION}.score_term.projection.weight", (f"{LAYER}.rel_attn.r",)),
        (f"{ATTENTION}.score_term.query_biases.content_bias", (f"{LAYER}.rel_attn.r_w_bias",)),
        (f"{ATTENTION}.score_term.query_biases.position_bias", (f"{LAYER}.rel_attn.r_r_bias",)),
        (f"{ATTENTION}.score_term.segment_scores.segment_bias", (f"{LAYER}.rel_attn.r_s_bias",)),
        (f"{ATTENTION}.score_term.segment_scores.table.weight", (f"{LAYER}.rel_attn.seg_embed",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.rel_attn.layer_norm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ff.layer_1",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ff.layer_2",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.ff.layer_norm",)),
    )
    head_table = (("output.bias", ("lm_loss.bias",)), ("output.table", ("lm_loss",)))
    task_heads = TOKEN_HEAD
    published_special_tokens = {"start": "<cls>", "end": "<sep>"}
    default_max_length = 512
    token_id_keys = BOS_EOS_PAD
    config_keys = (
        ConfigKey("d_model", "encoder.width", 1024),
        ConfigKey("n_layer", "encoder.depth.layers", 24),
        ConfigKey("n_head", "encoder.mixer.heads", 16),
        ConfigKey("d_inner", "encoder.feed_forward.width", 4096),
        ConfigKey(
            "ff_activation", "encoder.feed_forward.kind", "gelu", {"gelu": "gelu", "relu": "relu"}
        ),
        ConfigKey("layer_norm_eps", "encoder.norm.epsilon", 1e-12),
        ConfigKey("dropout", "encoder.dropout", 0.1),
        ConfigKey("dropout", "encoder.mixer.dropout", 0.1),
        ConfigKey("dropout", "encoder.positions.dropout", 0.1),
        ConfigKey("dropout", "encoder.feed_forward.dropout", 0.1),
        ConfigKey("dropout", "encoder.output_dropout", 0.1),
    )
    fixed_axes = without(COMMON_AXES, "encoder.memory_length") | {
        "encoder.embeddings.norm": (False,),
        "encoder.embeddings.segments": (0,),
        "encoder.embeddings.query_vector": (True,),
        "encoder.positions.kind": ("transformer-xl",),
        "encoder.positions.untied": (True,),
        "encoder.positions.segments": (True,),
        "encoder.positions.longest": (None,),
        "encoder.positions.base": (10000.0,),
        "encoder.visibility.kind": ("bidirectional",),
        "encoder.mixer.bias": (False,),
        "output.transform": (False,),
        "output.bias": (True,),
    }
    required_config = {
        "attn_type": "bi",
        "untie_r": True,
        "bi_data": False,
        "clamp_len": -1,
        "same_length": False,
    }

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        head_width = config["d_model"] // config["n_head"]
        return {**config, **self.required_config, "d_head": head_width}

    def to_stock_shape(self, tensors: StateDict, model: EncoderModel) -> StateDict:
        shape = model.recipe.encoder.mixer.head_shape(model.recipe.encoder.width)
        by_head = (shape.num_heads, shape.head_width)
        result: StateDict = {}
        for name, tensor in tensors.items():
            if name.endswith(INTO_HEADS):
                tensor = tensor.T.unflatten(1, by_head)
            elif name.endswith(FROM_HEADS):
                tensor = tensor.unflatten(-1, by_head)
            elif name.endswith("mask_emb"):
                tensor = tensor[None, None]
            result[name] = tensor
        return result

    def from_stock_shape(self, tensors: StateDict) -> StateDict:
        result: StateDict = {}
        for name, tensor in tensors.items():
            if name.endswith(INTO_HEADS):
                tensor = tensor.flatten(1).T
            elif name.endswith(FROM_HEADS):
                tensor = tensor.flatten(-2)
            elif name.endswith("mask_emb"):
                tensor = tensor.flatten()
            result[name] = tensor
        return result
