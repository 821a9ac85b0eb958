"""BART (Lewis et al. 2020)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.errors import UserError
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import BARE, DECODED, Classifier, Net
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.interop.huggingface.t5 import begin_of
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials


def _stack(ours: str) -> Table:
    block, layer = f"{ours}.blocks.#", f"{ours}.layers.#"
    own, across = f"{block}.sublayers.attention", f"{block}.sublayers.cross_attention"
    of_own, of_across = f"{layer}.self_attn", f"{layer}.encoder_attn"
    return (
        (f"{ours}.embeddings.positions.table", (f"{ours}.embed_positions",)),
        (f"{ours}.embeddings.join.norm", (f"{ours}.layernorm_embedding",)),
        (f"{own}.projection", tuple(f"{of_own}.{n}_proj" for n in "qkv")),
        (f"{own}.output", (f"{of_own}.out_proj",)),
        (f"{block}.norms.attention", (f"{layer}.self_attn_layer_norm",)),
        (f"{across}.projection", (f"{of_across}.q_proj",)),
        (f"{across}.source", tuple(f"{of_across}.{n}_proj" for n in "kv")),
        (f"{across}.output", (f"{of_across}.out_proj",)),
        (f"{block}.norms.cross_attention", (f"{layer}.encoder_attn_layer_norm",)),
        (f"{block}.sublayers.feed_forward.up", (f"{layer}.fc1",)),
        (f"{block}.sublayers.feed_forward.down", (f"{layer}.fc2",)),
        (f"{block}.norms.feed_forward", (f"{layer}.final_layer_norm",)),
    )


UNREAD = "bias behind the output"
"""What we call a buffer of zeros that no training changes."""

BY_STACK = ("attention_heads", "ffn_dim")
"""Keys that each stack has for itself, and that must say the same here."""


class Bart(Family):
    """Two stacks of BERT's blocks; positions begin in row 2 of their tables."""

    model_type: ClassVar[str] = "bart"
    class_name: ClassVar[str] = "Bart"
    recipe: ClassVar[str] = "bart"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, None): DECODED,
        (False, None): BARE,
    }
    asks: ClassVar[str] = "denoising"
    prefix: ClassVar[str] = "model"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("shared",)),
        *_stack("encoder"),
        *_stack("decoder"),
    )
    head_table: ClassVar[Table] = (
        ("output.table", ("lm_head",)),
        (UNREAD, ("final_logits_bias",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {}
    pieces: ClassVar[str] = "shared.weight"
    decoder: ClassVar[str] = "lm_head"
    embedded: ClassVar[tuple[str, ...]] = (
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    )
    longest: ClassVar[int] = 1024
    keys: ClassVar[tuple[Key, ...]] = (
        Key("d_model", "encoder.width", 1024),
        Key("encoder_layers", "encoder.depth.layers", 12),
        Key("decoder_layers", "decoder.layers", 12),
        *(
            Key(f"{stack}_attention_heads", "encoder.mixer.heads", 16)
            for stack in ("encoder", "decoder")
        ),
        *(
            Key(f"{stack}_ffn_dim", "encoder.feed_forward.width", 4096)
            for stack in ("encoder", "decoder")
        ),
        Key(
            "activation_function",
            "encoder.feed_forward.kind",
            "gelu",
            {"gelu": "gelu", "gelu_new": "gelu-tanh", "relu": "relu"},
        ),
        Key("dropout", "encoder.dropout", 0.1),
        Key("attention_dropout", "encoder.mixer.dropout", 0.0),
        Key("scale_embedding", "encoder.embeddings.scaled", False),
        Key("max_position_embeddings", "encoder.positions.size", 1024),
        Key("max_position_embeddings", "decoder.positions.size", 1024),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        "encoder.depth.kind": ("stack",),
        "encoder.embeddings.kind": ("pieces",),
        "encoder.embeddings.norm": (True,),
        "encoder.embeddings.segments": (0,),
        "encoder.positions.kind": ("learned",),
        "encoder.positions.offset": (2,),
        "encoder.visibility.kind": ("bidirectional",),
        "encoder.mixer.kind": ("attention",),
        "encoder.mixer.bias": (True,),
        "encoder.feed_forward.bias": (True,),
        "encoder.norm.kind": ("layernorm",),
        "encoder.norm.placement": ("post",),
        "encoder.norm.bias": (True,),
        "encoder.norm.epsilon": (1e-5,),
        "decoder.order": ("scf",),
        "decoder.positions.kind": ("learned",),
        "decoder.positions.offset": (2,),
        "output.transform": (False,),
        "output.bias": (False,),
    }

    def simplified(self, config: Config) -> Config:
        for name in BY_STACK:
            here, there = (config.get(f"{stack}_{name}") for stack in ("encoder", "decoder"))
            if here != there:
                raise UserError(
                    f"encoder_{name} is {here!r} and decoder_{name} {there!r}: what can be read "
                    f"has the same in both"
                )
        return config

    def received(self, tensors: Tensors, config: Config) -> Tensors:
        bias = tensors.pop(UNREAD, None)
        if bias is not None and bool(bias.any()):
            raise UserError("final_logits_bias is not 0: what can be read has no bias there")
        return tensors

    def as_stock(self, tensors: Tensors, net: Net) -> Tensors:
        if "lm_head.weight" not in tensors:
            return tensors
        # Where the output has a table of its own, the stock class has one in each stack as well.
        own = self.embedded
        return {**tensors, **{name: tensors["model.shared.weight"].clone() for name in own}}

    def lacks_alone(self, recipe: Recipe, longest: int | None) -> str | None:
        return "BartModel ends with the states of its decoder"

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        return {
            **config,
            "is_encoder_decoder": True,
            "pad_token_id": specials.pad,
            "bos_token_id": specials.start,
            "eos_token_id": specials.end,
            "forced_eos_token_id": specials.end,
            "decoder_start_token_id": begin_of(recipe, specials, "end"),
        }
