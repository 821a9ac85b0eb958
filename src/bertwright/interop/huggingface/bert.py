"""BERT (Devlin et al. 2019): ``BertModel`` and the stock classes around it."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from bertwright.encoder.roles import roles
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import (
    BARE,
    MASKED,
    OPTIONS,
    SPANS,
    TEXTS,
    TRAINED,
    WORDS,
    Classifier,
    Net,
)
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

BLOCK, LAYER = "encoder.blocks.#", "encoder.layer.#"

ENCODER: Table = (
    ("encoder.embeddings.pieces", ("embeddings.word_embeddings",)),
    ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
    ("encoder.embeddings.segments", ("embeddings.token_type_embeddings",)),
    ("encoder.embeddings.join.norm", ("embeddings.LayerNorm",)),
    (
        f"{BLOCK}.sublayers.attention.projection",
        (
            f"{LAYER}.attention.self.query",
            f"{LAYER}.attention.self.key",
            f"{LAYER}.attention.self.value",
        ),
    ),
    (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attention.output.dense",)),
    (f"{BLOCK}.norms.attention", (f"{LAYER}.attention.output.LayerNorm",)),
    (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.intermediate.dense",)),
    (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.output.dense",)),
    (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.output.LayerNorm",)),
    ("pooler", ("pooler.dense",)),
)

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}

KEYS: tuple[Key, ...] = (
    Key("hidden_size", "encoder.width", 768),
    Key("num_hidden_layers", "encoder.depth.layers", 12),
    Key("num_attention_heads", "encoder.mixer.heads", 12),
    Key("intermediate_size", "encoder.feed_forward.width", 3072),
    Key("hidden_act", "encoder.feed_forward.kind", "gelu", ACTIVATIONS),
    Key("layer_norm_eps", "encoder.norm.epsilon", 1e-12),
    Key("hidden_dropout_prob", "encoder.dropout", 0.1),
    Key("attention_probs_dropout_prob", "encoder.mixer.dropout", 0.1),
    Key("max_position_embeddings", "encoder.positions.size", 512),
    Key("type_vocab_size", "encoder.embeddings.segments", 2),
)

AXES: dict[str, tuple[Any, ...]] = {
    "encoder.depth.kind": ("stack",),
    "encoder.embeddings.kind": ("pieces",),
    "encoder.embeddings.norm": (True,),
    "encoder.memory": (0,),
    "encoder.positions.kind": ("learned",),
    "encoder.visibility.kind": ("bidirectional", "document"),
    "encoder.mixer.kind": ("attention",),
    "encoder.mixer.bias": (True, False),
    "encoder.feed_forward.bias": (True, False),
    "encoder.norm.kind": ("layernorm",),
    "encoder.norm.placement": ("post",),
    "encoder.norm.bias": (True, False),
    "output.transform": (True,),
    "output.transform_bias": (True, False),
    "output.bias": (True, False),
}


class Bert(Family):
    """Post-norm, learned positions, a transform before the vocabulary.

    What a recipe leaves out and the stock class always has (biases, segments) is written as the
    zeros that it amounts to; rows of positions before the first one are cut off.
    """

    model_type: ClassVar[str] = "bert"
    class_name: ClassVar[str] = "Bert"
    recipe: ClassVar[str] = "bert"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, "next-sentence"): TRAINED,
        (True, None): MASKED,
        (False, "next-sentence"): "ForNextSentencePrediction",
        (False, None): BARE,
    }
    outputs: ClassVar[Mapping[str, str]] = {"next-sentence": "seq_relationship_logits"}
    prefix: ClassVar[str] = "bert"
    encoder_table: ClassVar[Table] = ENCODER
    head_table: ClassVar[Table] = (
        ("output.transform.dense", ("cls.predictions.transform.dense",)),
        ("output.transform.norm", ("cls.predictions.transform.LayerNorm",)),
        ("output.bias", ("cls.predictions.bias",)),
        ("output.table", ("cls.predictions.decoder",)),
        ("heads.next-sentence.classifier", ("cls.seq_relationship",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(
            ("pooler", "dense"),
            ("first",),
            (("head.enter.dense", ("bert.pooler.dense",)), ("head.out", ("classifier",))),
        ),
        WORDS: Classifier(("plain",), ("places",), (("head.out", ("classifier",)),)),
        SPANS: Classifier(("plain",), ("places",), (("head.out", ("qa_outputs",)),)),
        OPTIONS: Classifier(
            ("pooler", "dense"),
            ("first",),
            (("head.enter.dense", ("bert.pooler.dense",)), ("head.out", ("classifier",))),
        ),
    }
    pieces: ClassVar[str] = "embeddings.word_embeddings.weight"
    decoder: ClassVar[str] = "cls.predictions.decoder"
    output_bias: ClassVar[str | None] = "cls.predictions.bias"
    longest: ClassVar[int] = 512
    keys: ClassVar[tuple[Key, ...]] = (
        *KEYS,
        Key("hidden_act", "output.activation", "gelu", ACTIVATIONS),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = AXES
    required: ClassVar[dict[str, Any]] = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    }

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        segments = max(1, config["type_vocab_size"])
        return {**config, "type_vocab_size": segments, "pad_token_id": specials.pad}

    def completed(self, net: Net) -> Tensors:
        tensors = with_zeros(net)
        positions = "encoder.embeddings.positions.table.weight"
        unused = net.recipe.encoder.positions.offset  # type: ignore[attr-defined]
        return {**tensors, positions: tensors[positions][unused:]}


def with_zeros(net: Net) -> Tensors:
    """The parameters of a model, and zeros for the biases and segments that it has not."""
    tensors: Tensors = dict(net.named_parameters())
    table = net.encoder.embeddings.table
    tensors.setdefault("encoder.embeddings.segments.weight", torch.zeros(1, table.shape[1]))
    if any(name.startswith("output.") for name in tensors):
        tensors.setdefault("output.bias", torch.zeros(len(table)))
    for name, role in roles(net).items():
        if role.kind in ("matrix", "norm") and name.endswith(".weight"):
            bias = name.removesuffix("weight") + "bias"
            tensors.setdefault(bias, torch.zeros(len(tensors[name])))
    return tensors
