"""ELECTRA (Clark et al. 2020): BERT's encoder, with a narrow table and two kinds of head."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.interop.huggingface.bert import AXES, ENCODER, KEYS, Bert
from bertwright.interop.huggingface.family import Key
from bertwright.interop.huggingface.purposes import BARE, MASKED, TRAINED, WORDS, Classifier
from bertwright.interop.huggingface.renaming import Table

NARROW = Key("embedding_size", "encoder.embeddings.width", 128)


def described(settings: dict[str, Any]) -> dict[str, Any]:
    """A table that is as wide as the encoder is no factorised one."""
    encoder = settings["encoder"]
    if encoder["embeddings"]["width"] == encoder["width"]:
        encoder["embeddings"]["kind"] = "pieces"
        del encoder["embeddings"]["width"]
    return settings


class Electra(Bert):
    """The discriminator is ``ElectraForPreTraining``, the generator ``ElectraForMaskedLM``; no
    stock class ties the two, so a model with both is written without its generator."""

    model_type: ClassVar[str] = "electra"
    class_name: ClassVar[str] = "Electra"
    recipe: ClassVar[str] = "electra"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (False, "replaced-token"): TRAINED,
        (True, None): MASKED,
        (False, None): BARE,
    }
    outputs: ClassVar[Mapping[str, str]] = {"replaced-token": "logits"}
    prefix: ClassVar[str] = "electra"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.up", ("embeddings_project",)),
        *(row for row in ENCODER if row[0] != "pooler"),
    )
    head_table: ClassVar[Table] = (
        ("output.transform.dense", ("generator_predictions.dense",)),
        ("output.transform.norm", ("generator_predictions.LayerNorm",)),
        ("output.bias", ("generator_lm_head.bias",)),
        ("output.table", ("generator_lm_head",)),
        ("heads.replaced-token.dense", ("discriminator_predictions.dense",)),
        ("heads.replaced-token.out", ("discriminator_predictions.dense_prediction",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {WORDS: Bert.classifiers[WORDS]}
    decoder: ClassVar[str] = "generator_lm_head"
    output_bias: ClassVar[str | None] = "generator_lm_head.bias"
    keys: ClassVar[tuple[Key, ...]] = (
        *KEYS,
        NARROW,
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **AXES,
        "encoder.embeddings.kind": ("factorised", "pieces"),
        "output.activation": ("gelu",),
    }

    def described(self, settings: dict[str, Any]) -> dict[str, Any]:
        return described(settings)
