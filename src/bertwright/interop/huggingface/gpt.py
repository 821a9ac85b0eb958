"""GPT-2 (Radford et al. 2019) and GPT (2018): causal stacks, their matrices stored transposed."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.encoder.visibility import Causal, Visibility
from bertwright.interop.huggingface.bert import ACTIVATIONS, Bert
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import BARE, CAUSAL, WORDS, Classifier, Net
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

BLOCK, LAYER = "encoder.blocks.#", "h.#"

OTHERWISE = ("activation_function", "n_inner", "n_positions")
"""Keys of GPT-2 that GPT has not, or has in another way."""

LAYERS: Table = (
    (f"{BLOCK}.norms.attention", (f"{LAYER}.ln_1",)),
    (f"{BLOCK}.sublayers.attention.projection", (f"{LAYER}.attn.c_attn",)),
    (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attn.c_proj",)),
    (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.ln_2",)),
    (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.mlp.c_fc",)),
    (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.mlp.c_proj",)),
)


class Gpt2(Family):
    """Pre-norm, with a norm after the last block."""

    model_type: ClassVar[str] = "gpt2"
    class_name: ClassVar[str] = "GPT2"
    recipe: ClassVar[str] = "gpt-2"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, None): CAUSAL,
        (False, None): BARE,
    }
    asks: ClassVar[str] = "causal"
    visibility: ClassVar[Visibility] = Causal()
    prefix: ClassVar[str] = "transformer"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("wte",)),
        ("encoder.embeddings.positions.table", ("wpe",)),
        *LAYERS,
        ("encoder.norm", ("ln_f",)),
    )
    head_table: ClassVar[Table] = (("output.table", ("lm_head",)),)
    classifiers: ClassVar[dict[str, Classifier]] = {WORDS: Bert.classifiers[WORDS]}
    pieces: ClassVar[str] = "wte.weight"
    decoder: ClassVar[str] = "lm_head"
    longest: ClassVar[int] = 1024
    keys: ClassVar[tuple[Key, ...]] = (
        Key("n_embd", "encoder.width", 768),
        Key("n_layer", "encoder.depth.layers", 12),
        Key("n_head", "encoder.mixer.heads", 12),
        Key("n_inner", "encoder.feed_forward.width", None),
        Key("activation_function", "encoder.feed_forward.kind", "gelu_new", ACTIVATIONS),
        Key("layer_norm_epsilon", "encoder.norm.epsilon", 1e-5),
        Key("resid_pdrop", "encoder.dropout", 0.1),
        Key("attn_pdrop", "encoder.mixer.dropout", 0.1),
        Key("n_positions", "encoder.positions.size", 1024),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        "encoder.depth.kind": ("stack",),
        "encoder.embeddings.kind": ("pieces",),
        "encoder.embeddings.norm": (False,),
        "encoder.memory": (0,),
        "encoder.embeddings.segments": (0,),
        "encoder.positions.kind": ("learned",),
        "encoder.positions.offset": (0,),
        "encoder.visibility.kind": ("causal",),
        "encoder.mixer.kind": ("attention",),
        "encoder.mixer.bias": (True,),
        "encoder.feed_forward.bias": (True,),
        "encoder.norm.kind": ("layernorm",),
        "encoder.norm.placement": ("pre",),
        "encoder.norm.bias": (True,),
        "output.transform": (False,),
        "output.bias": (False,),
    }
    required: ClassVar[dict[str, Any]] = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    }

    def simplified(self, config: Config) -> Config:
        positions = config.get("n_positions", config.get("n_ctx", self.longest))
        return {**config, "max_position_embeddings": positions}

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        return {
            **config,
            "embd_pdrop": config["resid_pdrop"],
            "bos_token_id": specials.start,
            "eos_token_id": specials.end,
            "pad_token_id": specials.pad,
        }

    def as_stock(self, tensors: Tensors, net: Net) -> Tensors:
        return transposed(tensors)

    def from_stock(self, tensors: Tensors) -> Tensors:
        return transposed(tensors)


class Gpt(Gpt2):
    """Post-norm, without a norm after the last block."""

    model_type: ClassVar[str] = "openai-gpt"
    class_name: ClassVar[str] = "OpenAIGPT"
    recipe: ClassVar[str] = "gpt"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("tokens_embed",)),
        ("encoder.embeddings.positions.table", ("positions_embed",)),
        *LAYERS,
    )
    pieces: ClassVar[str] = "tokens_embed.weight"
    longest: ClassVar[int] = 512
    keys: ClassVar[tuple[Key, ...]] = (
        *(key for key in Gpt2.keys if key.theirs not in OTHERWISE),
        Key("afn", "encoder.feed_forward.kind", "gelu", {"gelu": "gelu-tanh", "relu": "relu"}),
        Key("n_positions", "encoder.positions.size", 512),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {**Gpt2.axes, "encoder.norm.placement": ("post",)}
    required: ClassVar[dict[str, Any]] = {}

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        encoder = recipe.encoder
        inner = encoder.feed_forward.inner(encoder.width)
        if inner == 4 * encoder.width:
            return []
        return [f"encoder.feed_forward.width is {inner} (OpenAIGPT: {4 * encoder.width})"]


def transposed(tensors: Tensors) -> Tensors:
    """The same, with the matrices of the blocks transposed."""
    return {
        name: tensor.T if tensor.ndim == 2 and ".c_" in name else tensor
        for name, tensor in tensors.items()
    }
