"""T5 (Raffel et al. 2020): version 1.0, and 1.1 with gates and a second table for the output."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.interop.huggingface.family import NOWHERE, Config, Family, Key
from bertwright.interop.huggingface.purposes import BARE, DECODED, Classifier, Net
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.interop.huggingface.weights import STATED_TIE
from bertwright.objectives.denoising import Denoising
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials


def _stack(ours: str, feed_forward: int) -> Table:
    """The names of one stack, whose feed-forward is the sublayer of this number."""
    block, layer = f"{ours}.blocks.#", f"{ours}.block.#.layer"
    own, inner = (f"{block}.sublayers.{name}" for name in ("attention", "feed_forward"))
    attention, inside = f"{layer}.0.SelfAttention", f"{layer}.{feed_forward}.DenseReluDense"
    bias = f"{ours}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        (f"{ours}.embeddings.positions.table", (bias,)),
        (f"{own}.projection", tuple(f"{attention}.{n}" for n in "qkv")),
        (f"{own}.output", (f"{attention}.o",)),
        (f"{block}.norms.attention", (f"{layer}.0.layer_norm",)),
        (f"{inner}.up", (f"{inside}.wi",)),
        (f"{inner}.up", (f"{inside}.wi_0", f"{inside}.wi_1")),
        (f"{inner}.down", (f"{inside}.wo",)),
        (f"{block}.norms.feed_forward", (f"{layer}.{feed_forward}.layer_norm",)),
        (f"{ours}.norm", (f"{ours}.final_layer_norm",)),
    )


ACROSS = "decoder.blocks.#.sublayers.cross_attention"
READS = "decoder.block.#.layer.1"
CROSS_ATTENTION: Table = (
    (f"{ACROSS}.projection", (f"{READS}.EncDecAttention.q",)),
    (f"{ACROSS}.source", tuple(f"{READS}.EncDecAttention.{n}" for n in "kv")),
    (f"{ACROSS}.output", (f"{READS}.EncDecAttention.o",)),
    ("decoder.blocks.#.norms.cross_attention", (f"{READS}.layer_norm",)),
)
BUCKETS: tuple[tuple[str, str, int], ...] = (
    ("relative_attention_num_buckets", "buckets", 32),
    ("relative_attention_max_distance", "longest", 128),
)


class T5(Family):
    """Two stacks without biases; the first block of each holds the numbers of its distances."""

    model_type: ClassVar[str] = "t5"
    class_name: ClassVar[str] = "T5"
    recipe: ClassVar[str] = "t5"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, None): DECODED,
        (False, None): BARE,
    }
    asks: ClassVar[str] = "denoising"
    prefix: ClassVar[str] = "encoder"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("shared",)),
        *_stack("encoder", 1),
        *_stack("decoder", 2),
        *CROSS_ATTENTION,
    )
    head_table: ClassVar[Table] = (("output.table", ("lm_head",)),)
    classifiers: ClassVar[dict[str, Classifier]] = {}
    decoder: ClassVar[str] = "lm_head"
    embedded: ClassVar[tuple[str, ...]] = (
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
    )
    unread: ClassVar[tuple[str, ...]] = (
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    )
    longest: ClassVar[int] = 512
    keys: ClassVar[tuple[Key, ...]] = (
        Key("d_model", "encoder.width", 512),
        Key("num_layers", "encoder.depth.layers", 6),
        Key("num_decoder_layers", "decoder.layers", None),
        Key("num_heads", "encoder.mixer.heads", 8),
        Key("d_kv", "encoder.mixer.head_width", 64),
        Key("d_ff", "encoder.feed_forward.width", 2048),
        Key(
            "feed_forward_proj",
            "encoder.feed_forward.kind",
            "relu",
            {"relu": "relu", "gated-gelu": "geglu-tanh", "gated-silu": "swiglu"},
        ),
        Key("layer_norm_epsilon", "encoder.norm.epsilon", 1e-6),
        Key("dropout_rate", "encoder.dropout", 0.1),
        Key("dropout_rate", "encoder.mixer.dropout", 0.1),
        Key("scale_decoder_outputs", "output.scaled", True),
        *(
            Key(theirs, f"{stack}.positions.{ours}", default)
            for stack in ("encoder", "decoder")
            for theirs, ours, default in BUCKETS
        ),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        "encoder.depth.kind": ("stack",),
        "encoder.embeddings.kind": ("pieces",),
        "encoder.embeddings.norm": (False,),
        "encoder.embeddings.segments": (0,),
        "encoder.positions.kind": ("bucketed",),
        "encoder.positions.one_sided": (False,),
        "encoder.positions.gated": (False,),
        "encoder.visibility.kind": ("bidirectional",),
        "encoder.mixer.kind": ("attention",),
        "encoder.mixer.bias": (False,),
        "encoder.mixer.scaled": (False,),
        "encoder.feed_forward.bias": (False,),
        "encoder.norm.kind": ("rmsnorm",),
        "encoder.norm.placement": ("pre",),
        "decoder.order": ("scf",),
        "decoder.positions.kind": ("bucketed",),
        "decoder.positions.one_sided": (True,),
        "decoder.positions.gated": (False,),
        "output.transform": (False,),
        "output.bias": (False,),
    }
    nowhere: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        path: choices for path, choices in NOWHERE.items() if path != "encoder.mixer.width"
    }

    @property
    def table_of_pieces(self) -> str:
        return "shared.weight"

    def table(self, purpose: str) -> Table:
        return self.encoder_table + self.head_table

    def simplified(self, config: Config) -> Config:
        # Whether the output is scaled is said by the tie, whatever the tables are.
        stated = config.get(STATED_TIE, config.get("tie_word_embeddings", True))
        return {"scale_decoder_outputs": stated, **config}

    def described(self, settings: dict[str, Any]) -> dict[str, Any]:
        mixer = settings["encoder"]["mixer"]
        mixer["width"] = mixer["heads"] * mixer["head_width"]
        return settings

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        return {
            **config,
            "is_encoder_decoder": True,
            "pad_token_id": specials.pad,
            "eos_token_id": specials.end,
            "decoder_start_token_id": begin_of(recipe, specials),
        }

    def as_stock(self, tensors: Tensors, net: Net) -> Tensors:
        if not net.recipe.encoder.feed_forward.gated:
            return tensors
        found: Tensors = {}
        for name, tensor in tensors.items():
            if name.endswith(".wi.weight"):
                stem = name.removesuffix(".weight")
                found[f"{stem}_0.weight"], found[f"{stem}_1.weight"] = tensor.chunk(2)
            else:
                found[name] = tensor
        return found


def begin_of(recipe: Recipe, specials: Specials, usual: str = "pad") -> int:
    """The piece that a decoder is given first: the ``usual`` one where no objective says so."""
    asked = (o for o in recipe.objectives.values() if isinstance(o, Denoising))
    begins = next((o.noising.begins for o in asked), usual)
    number: int = getattr(specials, begins)
    return number
