"""DistilBERT (Sanh et al. 2019): BERT's body without segments and pooler."""

from typing import Any, ClassVar

from bertwright.interop.huggingface.bert import ACTIVATIONS, AXES, Bert
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import SPANS, TEXTS, WORDS, Classifier
from bertwright.interop.huggingface.renaming import Table
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

BLOCK, LAYER = "encoder.blocks.#", "transformer.layer.#"


class DistilBert(Family):
    """The epsilon of its norms is fixed."""

    model_type: ClassVar[str] = "distilbert"
    class_name: ClassVar[str] = "DistilBert"
    recipe: ClassVar[str] = "bert"
    prefix: ClassVar[str] = "distilbert"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("embeddings.word_embeddings",)),
        ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
        ("encoder.embeddings.join.norm", ("embeddings.LayerNorm",)),
        (
            f"{BLOCK}.sublayers.attention.projection",
            tuple(f"{LAYER}.attention.{name}_lin" for name in "qkv"),
        ),
        (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attention.out_lin",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.sa_layer_norm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ffn.lin1",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ffn.lin2",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.output_layer_norm",)),
    )
    head_table: ClassVar[Table] = (
        ("output.transform.dense", ("vocab_transform",)),
        ("output.transform.norm", ("vocab_layer_norm",)),
        ("output.bias", ("vocab_projector.bias",)),
        ("output.table", ("vocab_projector",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(
            ("dense",),
            ("first",),
            (("head.enter.dense", ("pre_classifier",)), ("head.out", ("classifier",))),
            "relu",
        ),
        WORDS: Bert.classifiers[WORDS],
        SPANS: Bert.classifiers[SPANS],
    }
    pieces: ClassVar[str] = "embeddings.word_embeddings.weight"
    decoder: ClassVar[str] = "vocab_projector"
    output_bias: ClassVar[str | None] = "vocab_projector.bias"
    longest: ClassVar[int] = 512
    keys: ClassVar[tuple[Key, ...]] = (
        Key("dim", "encoder.width", 768),
        Key("n_layers", "encoder.depth.layers", 6),
        Key("n_heads", "encoder.mixer.heads", 12),
        Key("hidden_dim", "encoder.feed_forward.width", 3072),
        Key("activation", "encoder.feed_forward.kind", "gelu", ACTIVATIONS),
        Key("activation", "output.activation", "gelu", ACTIVATIONS),
        Key("dropout", "encoder.dropout", 0.1),
        Key("attention_dropout", "encoder.mixer.dropout", 0.1),
        Key("max_position_embeddings", "encoder.positions.size", 512),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **AXES,
        "encoder.embeddings.segments": (0,),
        "encoder.positions.offset": (0,),
        "encoder.mixer.bias": (True,),
        "encoder.feed_forward.bias": (True,),
        "encoder.norm.bias": (True,),
        "encoder.norm.epsilon": (1e-12,),
        "output.transform_bias": (True,),
        "output.bias": (True,),
    }
    required: ClassVar[dict[str, Any]] = {"sinusoidal_pos_embds": False}

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        return {**config, "pad_token_id": specials.pad}
