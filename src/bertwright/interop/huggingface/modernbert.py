"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions, gated feed-forwards."""

from typing import Any, ClassVar

from bertwright.axes import quoted
from bertwright.errors import UserError
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import READS, SPANS, TEXTS, WORDS, Classifier
from bertwright.interop.huggingface.renaming import Table
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

BLOCK, LAYER = "encoder.blocks.#", "layers.#"
GLOBAL, LOCAL = "full_attention", "sliding_attention"
BASES = {GLOBAL: 160_000.0, LOCAL: 10_000.0}
"""The bases of the rotary angles that the stock class takes where a file does not state them."""

OLD = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}
"""Where Transformers 4.48 states them."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
}


HEAD: Table = (
    ("head.enter.dense", ("head.dense",)),
    ("head.enter.norm", ("head.norm",)),
    ("head.out", ("classifier",)),
)


class ModernBert(Family):
    """Rotary angles of two bases, where some layers see a window only.

    The stock class drops inside the feed-forward where ours drops after it: the rate is carried
    over, and nothing differs once training is over.
    """

    model_type: ClassVar[str] = "modernbert"
    class_name: ClassVar[str] = "ModernBert"
    recipe: ClassVar[str] = "modern"
    prefix: ClassVar[str] = "model"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("embeddings.tok_embeddings",)),
        ("encoder.embeddings.join.norm", ("embeddings.norm",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.attn_norm",)),
        (f"{BLOCK}.sublayers.attention.projection", (f"{LAYER}.attn.Wqkv",)),
        (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attn.Wo",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.mlp_norm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.mlp.Wi",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.mlp.Wo",)),
        ("encoder.norm", ("final_norm",)),
    )
    head_table: ClassVar[Table] = (
        ("output.transform.dense", ("head.dense",)),
        ("output.transform.norm", ("head.norm",)),
        ("output.bias", ("decoder.bias",)),
        ("output.table", ("decoder",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(("transform",), tuple(READS.values()), HEAD),
        WORDS: Classifier(("transform",), ("places",), HEAD),
        SPANS: Classifier(("transform",), ("places",), HEAD),
    }
    pieces: ClassVar[str] = "embeddings.tok_embeddings.weight"
    decoder: ClassVar[str] = "decoder"
    output_bias: ClassVar[str | None] = "decoder.bias"
    longest: ClassVar[int] = 8192
    keys: ClassVar[tuple[Key, ...]] = (
        Key("hidden_size", "encoder.width", 768),
        Key("num_hidden_layers", "encoder.depth.layers", 22),
        Key("num_attention_heads", "encoder.mixer.heads", 12),
        Key("attention_bias", "encoder.mixer.bias", False),
        Key("attention_dropout", "encoder.mixer.dropout", 0.0),
        Key("intermediate_size", "encoder.feed_forward.width", 1152),
        Key(
            "hidden_activation",
            "encoder.feed_forward.kind",
            "gelu",
            {"gelu": "geglu", "silu": "swiglu"},
        ),
        Key("mlp_bias", "encoder.feed_forward.bias", False),
        Key("mlp_dropout", "encoder.dropout", 0.0),
        Key("norm_eps", "encoder.norm.epsilon", 1e-5),
        Key("norm_bias", "encoder.norm.bias", False),
        Key("rope_theta", "encoder.positions.base", BASES[GLOBAL]),
        Key("local", "encoder.local", None),
        Key("classifier_activation", "output.activation", "gelu", ACTIVATIONS),
        Key("classifier_bias", "output.transform_bias", False),
        Key("decoder_bias", "output.bias", True),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        "encoder.depth.kind": ("stack",),
        "encoder.embeddings.kind": ("pieces",),
        "encoder.embeddings.norm": (True,),
        "encoder.memory": (0,),
        "encoder.embeddings.segments": (0,),
        "encoder.positions.kind": ("rotary",),
        "encoder.visibility.kind": ("document", "bidirectional"),
        "encoder.mixer.kind": ("attention",),
        "encoder.norm.kind": ("layernorm",),
        "encoder.norm.placement": ("pre",),
        "encoder.norm.skip_first": (True,),
        "output.transform": (True,),
    }

    def simplified(self, config: Config) -> Config:
        num_layers = config.get("num_hidden_layers", 22)
        every = config.get("global_attn_every_n_layers", 3)
        kinds = config.get("layer_types") or [
            LOCAL if index % every else GLOBAL for index in range(num_layers)
        ]
        for angles in (_angles(config, GLOBAL), _angles(config, LOCAL)):
            kind = angles.get("rope_type", angles.get("type", "default"))
            if kind != "default":
                raise UserError(f"rope_type is {kind!r}: what can be read is 'default'")
        return {**config, "rope_theta": _base(config, GLOBAL), "local": _local(config, kinds)}

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        """Both spellings of the layers' views and angles: that of Transformers 5 and of 4.48."""
        config = dict(config)
        base, _ = config.pop("rope_theta"), config.pop("local")
        lengths = [recipe.assembly_of(number).length for number in range(len(recipe.phases))]
        near = recipe.encoder.local
        local_base = base if near is None or near.base is None else near.base
        return {
            **config,
            "layer_types": [
                LOCAL if near is not None and near.holds(index) else GLOBAL
                for index in range(config["num_hidden_layers"])
            ],
            "global_attn_every_n_layers": 1 if near is None else near.every,
            "local_attention": 128 if near is None else 2 * near.window,
            "rope_parameters": {
                GLOBAL: {"rope_type": "default", "rope_theta": base},
                LOCAL: {"rope_type": "default", "rope_theta": local_base},
            },
            "global_rope_theta": base,
            "local_rope_theta": local_base,
            "max_position_embeddings": max(lengths),
            "embedding_dropout": config["mlp_dropout"],
            "pad_token_id": specials.pad,
            "bos_token_id": specials.start,
            "eos_token_id": specials.end,
            "cls_token_id": specials.start,
            "sep_token_id": specials.end,
        }


def _local(config: Config, kinds: list[str]) -> dict[str, Any] | None:
    """The blocks that see a window, as our axis; UserError where they come in another order."""
    if LOCAL not in kinds:
        return None
    places = [index for index, kind in enumerate(kinds) if kind == GLOBAL]
    every = places[1] if len(places) > 1 else len(kinds)
    if kinds != [LOCAL if index % every else GLOBAL for index in range(len(kinds))]:
        raise UserError("layer_types see windows in an order that is not every so many layers")
    return {
        "every": every,
        "window": config.get("local_attention", 128) // 2,
        "base": _base(config, LOCAL),
    }


def _angles(config: Config, kind: str) -> dict[str, Any]:
    """What is said of the rotary angles of a kind of layer; what is said of all counts before."""
    stated: dict[str, Any] = config.get("rope_parameters") or {}
    of_kind = stated.get(kind) or {}
    if not isinstance(of_kind, dict):
        raise UserError(f"rope_parameters.{kind} is {quoted(of_kind)}: it must be an object")
    return {**stated, **of_kind, **(config.get("rope_scaling") or {})}


def _base(config: Config, kind: str) -> float | None:
    """The base of these angles; None, of those in a window, for that of the others."""
    return _angles(config, kind).get("rope_theta", config.get(OLD[kind], BASES[kind]))
