"""MobileBERT (Sun et al. 2020): thin blocks, trigrams, and no norms."""

from typing import Any, ClassVar

from bertwright.errors import UserError
from bertwright.interop.huggingface.bert import ACTIVATIONS, Bert
from bertwright.interop.huggingface.family import Config, Key
from bertwright.interop.huggingface.purposes import TEXTS, WORDS, Classifier, Net
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

BLOCK, LAYER = "encoder.blocks.#", "encoder.layer.#"
ATTENTION = f"{BLOCK}.sublayers.attention"
FEED_FORWARDS = {
    "feed_forward": ("ffn.0.intermediate", "ffn.0.output"),
    "feed_forward_2": ("ffn.1.intermediate", "ffn.1.output"),
    "feed_forward_3": ("ffn.2.intermediate", "ffn.2.output"),
    "feed_forward_4": ("intermediate", "output"),
}
"""Ours, in the order in which they come, and where the stock class has their two matrices."""

EXTENSION = "cls.predictions.dense.weight"
"""Stored as (width, pieces), where all other tables are (pieces, width)."""


def _feed_forwards() -> Table:
    rows: list[tuple[str, tuple[str, ...]]] = []
    for ours, (up, down) in FEED_FORWARDS.items():
        rows += [
            (f"{BLOCK}.sublayers.{ours}.up", (f"{LAYER}.{up}.dense",)),
            (f"{BLOCK}.sublayers.{ours}.down", (f"{LAYER}.{down}.dense",)),
            (f"{BLOCK}.norms.{ours}", (f"{LAYER}.{down}.LayerNorm",)),
        ]
    return tuple(rows)


class MobileBert(Bert):
    """What are called norms there are gains and biases, but for the one of the output.

    In a padded row the stock class reads the padding as the piece after the last one. Here there is
    nothing after it: the two agree where the row is not padded, or where the vector of the padding
    is zero, as the stock class begins.
    """

    model_type: ClassVar[str] = "mobilebert"
    class_name: ClassVar[str] = "MobileBert"
    recipe: ClassVar[str] = "mobilebert"
    prefix: ClassVar[str] = "mobilebert"
    reads_padding: ClassVar[bool] = True
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("embeddings.word_embeddings",)),
        ("encoder.embeddings.joining.dense", ("embeddings.embedding_transformation",)),
        ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
        ("encoder.embeddings.segments", ("embeddings.token_type_embeddings",)),
        ("encoder.embeddings.join.norm", ("embeddings.LayerNorm",)),
        (f"{BLOCK}.enter.dense", (f"{LAYER}.bottleneck.input.dense",)),
        (f"{BLOCK}.enter.norm", (f"{LAYER}.bottleneck.input.LayerNorm",)),
        (f"{ATTENTION}.projection.shared.dense", (f"{LAYER}.bottleneck.attention.dense",)),
        (f"{ATTENTION}.projection.shared.norm", (f"{LAYER}.bottleneck.attention.LayerNorm",)),
        (
            f"{ATTENTION}.projection.query_key",
            (f"{LAYER}.attention.self.query", f"{LAYER}.attention.self.key"),
        ),
        (f"{ATTENTION}.projection.value", (f"{LAYER}.attention.self.value",)),
        (f"{ATTENTION}.output", (f"{LAYER}.attention.output.dense",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.attention.output.LayerNorm",)),
        *_feed_forwards(),
        (f"{BLOCK}.out", (f"{LAYER}.output.bottleneck.dense",)),
        (f"{BLOCK}.norm", (f"{LAYER}.output.bottleneck.LayerNorm",)),
        ("pooler", ("pooler.dense",)),
    )
    head_table: ClassVar[Table] = (
        ("output.table.weight", (EXTENSION,)),
        *(row for row in Bert.head_table if row[0] != "output.table"),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(
            ("pooler",),
            ("first",),
            (("head.enter.dense", ("mobilebert.pooler.dense",)), ("head.out", ("classifier",))),
        ),
        WORDS: Bert.classifiers[WORDS],
    }
    tie: ClassVar[Key] = Key("tie_word_embeddings", "output.kind", True, {True: "extended"})
    keys: ClassVar[tuple[Key, ...]] = (
        Key("hidden_size", "encoder.width", 512),
        Key("num_hidden_layers", "encoder.depth.layers", 24),
        Key("num_attention_heads", "encoder.mixer.heads", 4),
        Key("intermediate_size", "encoder.feed_forward.width", 512),
        Key("intra_bottleneck_size", "encoder.bottleneck.width", 128),
        Key("embedding_size", "encoder.embeddings.width", 128),
        Key("hidden_act", "encoder.feed_forward.kind", "relu", ACTIVATIONS),
        Key("hidden_act", "output.activation", "relu", ACTIVATIONS),
        Key("layer_norm_eps", "output.norm.epsilon", 1e-12),
        Key("hidden_dropout_prob", "encoder.dropout", 0.0),
        Key("attention_probs_dropout_prob", "encoder.mixer.dropout", 0.1),
        Key("max_position_embeddings", "encoder.positions.size", 512),
        Key("type_vocab_size", "encoder.embeddings.segments", 2),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        "encoder.depth.kind": ("stack",),
        "encoder.depth.order": ("sffff",),
        "encoder.embeddings.kind": ("trigrams",),
        "encoder.embeddings.norm": (True,),
        "encoder.memory": (0,),
        "encoder.positions.kind": ("learned",),
        "encoder.positions.offset": (0,),
        "encoder.visibility.kind": ("bidirectional", "document"),
        "encoder.mixer.kind": ("attention",),
        "encoder.mixer.bias": (True,),
        "encoder.feed_forward.bias": (True,),
        "encoder.norm.kind": ("no-norm",),
        "encoder.norm.placement": ("post",),
        "output.transform": (True,),
        "output.transform_bias": (True,),
        "output.norm.kind": ("layernorm",),
        "output.norm.gain": (True,),
        "output.norm.bias": (True,),
        "output.bias": (True,),
    }
    required: ClassVar[dict[str, Any]] = {
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
        "num_feedforward_networks": 4,
        "normalization_type": "no_norm",
    }

    def completed(self, net: Net) -> Tensors:
        return dict(net.named_parameters())

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        reasons: list[str] = []
        if recipe.encoder.bottleneck is None:
            reasons.append("encoder.bottleneck is null (MobileBert: the width of the blocks)")
        elif not recipe.encoder.bottleneck.shared:
            reasons.append("encoder.bottleneck.shared is false (MobileBert: true)")
        if recipe.encoder.embeddings.segments == 0:
            reasons.append("encoder.embeddings.segments is 0 (MobileBert: at least 1)")
        return reasons

    def received(self, tensors: Tensors, config: Config) -> Tensors:
        pairs = any(name.startswith("heads.next-sentence.") for name in tensors)
        texts = next(iter(config.get("architectures") or [""])).endswith(TEXTS)
        if not config.get("classifier_activation", True) and (pairs or texts):
            raise UserError(
                "classifier_activation is False: a head that reads the first state as it is is not "
                "read; save the model as MobileBertForMaskedLM, or without a head"
            )
        return tensors

    def as_stock(self, tensors: Tensors, net: Net) -> Tensors:
        return _transposed(tensors)

    def from_stock(self, tensors: Tensors) -> Tensors:
        return _transposed(tensors)


def _transposed(tensors: Tensors) -> Tensors:
    return {name: t.T if name == EXTENSION else t for name, t in tensors.items()}
