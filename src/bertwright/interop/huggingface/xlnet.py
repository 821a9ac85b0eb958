"""XLNet (Yang et al. 2019): its content stream, which is all that is used after pre-training."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.encoder.visibility import InOrder, Visibility
from bertwright.interop.huggingface.bert import Bert
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import BARE, CAUSAL, WORDS, Classifier, Net
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

BLOCK, LAYER = "encoder.blocks.#", "layer.#"
ATTENTION = f"{BLOCK}.sublayers.attention"

INTO_HEADS = tuple(f".rel_attn.{name}" for name in "qkvr")
"""Matrices from the width to the heads: stored as (width, heads, width of a head)."""

FROM_HEADS = (".rel_attn.o", ".r_w_bias", ".r_r_bias", ".r_s_bias", ".seg_embed")
"""What has an axis of heads last: stored with one for the heads and one for the width of a head."""


class XlNet(Family):
    """Attention of stored heads: every matrix and vector has an axis for them."""

    model_type: ClassVar[str] = "xlnet"
    class_name: ClassVar[str] = "XLNet"
    recipe: ClassVar[str] = "xlnet"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, None): CAUSAL,
        (False, None): BARE,
    }
    asks: ClassVar[str] = "permutation"
    visibility: ClassVar[Visibility] = InOrder()
    prefix: ClassVar[str] = "transformer"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("word_embedding",)),
        ("encoder.embeddings.asking", ("mask_emb",)),
        (f"{ATTENTION}.projection.weight", tuple(f"{LAYER}.rel_attn.{name}" for name in "qkv")),
        (f"{ATTENTION}.output.weight", (f"{LAYER}.rel_attn.o",)),
        (f"{ATTENTION}.term.projection.weight", (f"{LAYER}.rel_attn.r",)),
        (f"{ATTENTION}.term.stand_ins.key", (f"{LAYER}.rel_attn.r_w_bias",)),
        (f"{ATTENTION}.term.stand_ins.distance", (f"{LAYER}.rel_attn.r_r_bias",)),
        (f"{ATTENTION}.term.segments.segment", (f"{LAYER}.rel_attn.r_s_bias",)),
        (f"{ATTENTION}.term.segments.table.weight", (f"{LAYER}.rel_attn.seg_embed",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.rel_attn.layer_norm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ff.layer_1",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ff.layer_2",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.ff.layer_norm",)),
    )
    head_table: ClassVar[Table] = (
        ("output.bias", ("lm_loss.bias",)),
        ("output.table", ("lm_loss",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {WORDS: Bert.classifiers[WORDS]}
    pieces: ClassVar[str] = "word_embedding.weight"
    decoder: ClassVar[str] = "lm_loss"
    output_bias: ClassVar[str | None] = "lm_loss.bias"
    special_pieces: ClassVar[Mapping[str, str]] = {"start": "<cls>", "end": "<sep>"}
    longest: ClassVar[int] = 512
    keys: ClassVar[tuple[Key, ...]] = (
        Key("d_model", "encoder.width", 1024),
        Key("n_layer", "encoder.depth.layers", 24),
        Key("n_head", "encoder.mixer.heads", 16),
        Key("d_inner", "encoder.feed_forward.width", 4096),
        Key("ff_activation", "encoder.feed_forward.kind", "gelu", {"gelu": "gelu", "relu": "relu"}),
        Key("layer_norm_eps", "encoder.norm.epsilon", 1e-12),
        Key("dropout", "encoder.dropout", 0.1),
        Key("dropout", "encoder.mixer.dropout", 0.1),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        "encoder.depth.kind": ("stack",),
        "encoder.embeddings.kind": ("pieces",),
        "encoder.embeddings.norm": (False,),
        "encoder.embeddings.segments": (0,),
        "encoder.embeddings.asking": (True,),
        "encoder.positions.kind": ("transformer-xl",),
        "encoder.positions.untied": (True,),
        "encoder.positions.segments": (True,),
        "encoder.positions.longest": (None,),
        "encoder.positions.base": (10000.0,),
        "encoder.visibility.kind": ("bidirectional",),
        "encoder.mixer.kind": ("attention",),
        "encoder.mixer.bias": (False,),
        "encoder.feed_forward.bias": (True,),
        "encoder.norm.kind": ("layernorm",),
        "encoder.norm.placement": ("post",),
        "encoder.norm.bias": (True,),
        "output.transform": (False,),
        "output.bias": (True,),
    }
    required: ClassVar[dict[str, Any]] = {
        "attn_type": "bi",
        "untie_r": True,
        "bi_data": False,
        "clamp_len": -1,
        "same_length": False,
    }

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        heads = config["n_head"]
        return {
            **config,
            **self.required,
            "d_head": config["d_model"] // heads,
            "pad_token_id": specials.pad,
            "bos_token_id": specials.start,
            "eos_token_id": specials.end,
        }

    def as_stock(self, tensors: Tensors, net: Net) -> Tensors:
        shape = net.recipe.encoder.mixer.shape(net.recipe.encoder.width)
        by_head = (shape.heads, shape.head_width)
        found: Tensors = {}
        for name, tensor in tensors.items():
            if name.endswith(INTO_HEADS):
                tensor = tensor.T.unflatten(1, by_head)
            elif name.endswith(FROM_HEADS):
                tensor = tensor.unflatten(-1, by_head)
            elif name.endswith("mask_emb"):
                tensor = tensor[None, None]
            found[name] = tensor
        return found

    def from_stock(self, tensors: Tensors) -> Tensors:
        found: Tensors = {}
        for name, tensor in tensors.items():
            if name.endswith(INTO_HEADS):
                tensor = tensor.flatten(1).T
            elif name.endswith(FROM_HEADS):
                tensor = tensor.flatten(-2)
            elif name.endswith("mask_emb"):
                tensor = tensor.flatten()
            found[name] = tensor
        return found
