"""ALBERT (Lan et al. 2020): a narrow table, and groups of layers that are one layer."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from bertwright.errors import UserError
from bertwright.interop.huggingface.bert import ACTIVATIONS, AXES, KEYS, Bert
from bertwright.interop.huggingface.electra import NARROW
from bertwright.interop.huggingface.family import Config, Key
from bertwright.interop.huggingface.purposes import (
    BARE,
    MASKED,
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

BLOCK, LAYER = "encoder.blocks.#", "encoder.albert_layer_groups.#.albert_layers.0"
BLOCKS, UP = "encoder.blocks.", "encoder.embeddings.up"

CHANGED = (
    "hidden_act",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


class Albert(Bert):
    """What is shared among all layers of a group is one layer there. Where only a part is shared,
    every layer is a group of its own and the part is written out in each."""

    model_type: ClassVar[str] = "albert"
    class_name: ClassVar[str] = "Albert"
    recipe: ClassVar[str] = "albert"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, "sentence-order"): TRAINED,
        (True, None): MASKED,
        (False, None): BARE,
    }
    outputs: ClassVar[Mapping[str, str]] = {"sentence-order": "sop_logits"}
    prefix: ClassVar[str] = "albert"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("embeddings.word_embeddings",)),
        ("encoder.embeddings.positions.table", ("embeddings.position_embeddings",)),
        ("encoder.embeddings.segments", ("embeddings.token_type_embeddings",)),
        ("encoder.embeddings.join.norm", ("embeddings.LayerNorm",)),
        ("encoder.embeddings.up", ("encoder.embedding_hidden_mapping_in",)),
        (
            f"{BLOCK}.sublayers.attention.projection",
            (f"{LAYER}.attention.query", f"{LAYER}.attention.key", f"{LAYER}.attention.value"),
        ),
        (f"{BLOCK}.sublayers.attention.output", (f"{LAYER}.attention.dense",)),
        (f"{BLOCK}.norms.attention", (f"{LAYER}.attention.LayerNorm",)),
        (f"{BLOCK}.sublayers.feed_forward.up", (f"{LAYER}.ffn",)),
        (f"{BLOCK}.sublayers.feed_forward.down", (f"{LAYER}.ffn_output",)),
        (f"{BLOCK}.norms.feed_forward", (f"{LAYER}.full_layer_layer_norm",)),
        ("pooler", ("pooler",)),
    )
    head_table: ClassVar[Table] = (
        ("output.transform.dense", ("predictions.dense",)),
        ("output.transform.norm", ("predictions.LayerNorm",)),
        ("output.bias", ("predictions.bias",)),
        ("output.table", ("predictions.decoder",)),
        ("heads.sentence-order.classifier", ("sop_classifier.classifier",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(
            ("pooler", "dense"),
            ("first",),
            (("head.enter.dense", ("albert.pooler",)), ("head.out", ("classifier",))),
        ),
        WORDS: Bert.classifiers[WORDS],
        SPANS: Bert.classifiers[SPANS],
    }
    decoder: ClassVar[str] = "predictions.decoder"
    output_bias: ClassVar[str | None] = "predictions.bias"
    keys: ClassVar[tuple[Key, ...]] = (
        *(key for key in KEYS if key.theirs not in CHANGED),
        Key("hidden_size", "encoder.width", 4096),
        Key("num_attention_heads", "encoder.mixer.heads", 64),
        Key("intermediate_size", "encoder.feed_forward.width", 16384),
        Key("hidden_dropout_prob", "encoder.dropout", 0.0),
        Key("attention_probs_dropout_prob", "encoder.mixer.dropout", 0.0),
        Key("hidden_act", "encoder.feed_forward.kind", "gelu_new", ACTIVATIONS),
        Key("hidden_act", "output.activation", "gelu_new", ACTIVATIONS),
        Key("sharing", "encoder.depth.sharing", "all"),
        Key("num_hidden_groups", "encoder.depth.groups", 1),
        NARROW,
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **AXES,
        "encoder.embeddings.kind": ("factorised",),
    }

    def simplified(self, config: Config) -> Config:
        groups, layers = config.get("num_hidden_groups", 1), config.get("num_hidden_layers", 12)
        if config.get("inner_group_num", 1) != 1:
            raise UserError("inner_group_num is not 1: groups of several layers are not read")
        if groups == layers > 1:
            return {**config, "sharing": "none", "num_hidden_groups": 1}
        return {**config, "sharing": "all", "num_hidden_groups": groups}

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        config = super().finished(config, recipe, specials)
        whole = config.pop("sharing") == "all"
        groups = config["num_hidden_groups"] if whole else config["num_hidden_layers"]
        return {**config, "num_hidden_groups": groups, "inner_group_num": 1}

    def completed(self, net: Net) -> Tensors:
        tensors = super().completed(net)
        depth = net.recipe.encoder.depth
        layers = len(depth.orders())
        groups = depth.groups if depth.sharing == "all" else layers
        kept = {n: t for n, t in tensors.items() if not n.startswith(BLOCKS)}
        width = net.recipe.encoder.width
        # The stock class projects a table that is as wide as the encoder, too.
        kept.setdefault(f"{UP}.weight", torch.eye(width))
        kept.setdefault(f"{UP}.bias", torch.zeros(width))
        for group in range(groups):
            layer = -(-group * layers // groups)
            for letter, part in (("s", "attention"), ("f", "feed_forward")):
                owner = f"{BLOCKS}{depth.owner(layer, letter)}."
                for name, tensor in tensors.items():
                    if name.startswith(owner) and name.split(".")[4] == part:
                        kept[name.replace(owner, f"{BLOCKS}{group}.", 1)] = tensor.clone()
        return kept

    def received(self, tensors: Tensors, config: Config) -> Tensors:
        groups, layers = config.get("num_hidden_groups", 1), config.get("num_hidden_layers", 12)
        up = tensors.get(f"{UP}.weight")
        if up is not None and up.shape[0] == up.shape[1]:
            if not torch.equal(up, torch.eye(len(up))) or tensors[f"{UP}.bias"].any():
                raise UserError("embedding_size equals hidden_size: that projection is not read")
            tensors = {n: t for n, t in tensors.items() if not n.startswith(f"{UP}.")}
        moved: Tensors = {}
        for name, tensor in tensors.items():
            if name.startswith(BLOCKS):
                group, rest = name.removeprefix(BLOCKS).split(".", 1)
                name = f"{BLOCKS}{-(-int(group) * layers // groups)}.{rest}"
            moved[name] = tensor
        return moved
