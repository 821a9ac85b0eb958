"""GPT-2 (Radford et al. 2019) and GPT (2018): causal, with matrices stored transposed."""

from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.bert import ACTIVATION_NAMES
from bertwright.interop.huggingface.families.config_keys import (
    BOS_EOS_PAD,
    COMMON_AXES,
    ConfigKey,
    StockConfig,
)
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    CAUSAL_LM,
    TOKEN_HEAD,
)
from bertwright.interop.huggingface.tensor_names import TensorNameTable
from bertwright.modules.attention.mask import CausalVisibility
from bertwright.recipes import Recipe

BLOCK, LAYER = "encoder.blocks.#", "h.#"

OVERRIDDEN_KEYS = ("activation_function", "n_inner", "n_positions")
"""Keys of GPT-2 that GPT does not have, or has in a different form."""

LAYER_TABLE: TensorNameTable = (
    (f"{BLOCK}.norms.attention", (f"{LAYER}.ln_1",)),
    (f"{BLOCK}.sublayers.attention.projection", (f"{LAYER}.attn.c_attn",)),
    (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attn.c_proj",)),
    (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.ln_2",)),
    (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.mlp.c_fc",)),
    (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.mlp.c_proj",)),
)


class Gpt2(ModelFamily):
    """GPT-2: pre-norm, with a norm after the last block."""

    model_type = "gpt2"
    class_name = "GPT2"
    recipe_name = "gpt-2"
    lm_head_type = CAUSAL_LM
    lm_objective = "causal"
    visibility = CausalVisibility()
    base_model_prefix = "transformer"
    encoder_table = (
        ("encoder.embeddings.tokens", ("wte",)),
        ("encoder.embeddings.positions.table", ("wpe",)),
        *LAYER_TABLE,
        ("encoder.norm", ("ln_f",)),
    )
    head_table = (("output.table", ("lm_head",)),)
    task_heads = TOKEN_HEAD
    default_max_length = 1024
    token_id_keys = BOS_EOS_PAD
    config_keys = (
        ConfigKey("n_embd", "encoder.width", 768),
        ConfigKey("n_layer", "encoder.depth.layers", 12),
        ConfigKey("n_head", "encoder.mixer.heads", 12),
        ConfigKey("n_inner", "encoder.feed_forward.width", None),
        ConfigKey("activation_function", "encoder.feed_forward.kind", "gelu_new", ACTIVATION_NAMES),
        ConfigKey("layer_norm_epsilon", "encoder.norm.epsilon", 1e-5),
        ConfigKey("resid_pdrop", "encoder.dropout", 0.1),
        ConfigKey("attn_pdrop", "encoder.mixer.dropout", 0.1),
        ConfigKey("n_positions", "encoder.positions.size", 1024),
    )
    fixed_axes = COMMON_AXES | {
        "encoder.embeddings.norm": (False,),
        "encoder.embeddings.segments": (0,),
        "encoder.positions.offset": (0,),
        "encoder.visibility.kind": ("causal",),
        "encoder.norm.placement": ("pre",),
        "output.transform": (False,),
        "output.bias": (False,),
    }
    transposed_tensors = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    required_config = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    }

    def normalise_config(self, config: StockConfig) -> StockConfig:
        positions = config.get("n_positions", config.get("n_ctx", self.default_max_length))
        return {**config, "max_position_embeddings": positions}

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        return {**config, "embd_pdrop": config["resid_pdrop"]}


class Gpt(Gpt2):
    """GPT: post-norm, without a norm after the last block."""

    model_type = "openai-gpt"
    class_name = "OpenAIGPT"
    recipe_name = "gpt"
    encoder_table = (
        ("encoder.embeddings.tokens", ("tokens_embed",)),
        ("encoder.embeddings.positions.table", ("positions_embed",)),
        *LAYER_TABLE,
    )
    default_max_length = 512
    config_keys = (
        *(key for key in Gpt2.config_keys if key.stock_key not in OVERRIDDEN_KEYS),
        ConfigKey(
            "afn", "encoder.feed_forward.kind", "gelu", {"gelu": "gelu-tanh", "relu": "relu"}
        ),
        ConfigKey("n_positions", "encoder.positions.size", 512),
    )
    fixed_axes = Gpt2.fixed_axes | {"encoder.norm.placement": ("post",)}
    required_config = {}

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        encoder = recipe.encoder
        inner = encoder.feed_forward.inner_width(encoder.width)
        if inner == 4 * encoder.width:
            return []
        return [f"encoder.feed_forward.width is {inner} (OpenAIGPT: {4 * encoder.width})"]
