"""ELECTRA (Clark et al. 2020): BERT's encoder, with a narrow table and two kinds of head."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.errors import UserError
from bertwright.interop.huggingface.bert import AXES, ENCODER, KEYS, Bert
from bertwright.interop.huggingface.family import Config, Key
from bertwright.interop.huggingface.purposes import (
    BARE,
    MASKED,
    OVER_TEXTS,
    SPANS,
    TEXTS,
    TRAINED,
    WORDS,
    Classifier,
)
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.objectives import ReplacedToken
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

NARROW = Key("embedding_size", "encoder.embeddings.width", 128)

CHANGED = ("hidden_size", "num_attention_heads", "intermediate_size")


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
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(("dense",), ("first",), OVER_TEXTS, "gelu"),
        WORDS: Bert.classifiers[WORDS],
        SPANS: Bert.classifiers[SPANS],
    }
    decoder: ClassVar[str] = "generator_lm_head"
    output_bias: ClassVar[str | None] = "generator_lm_head.bias"
    keys: ClassVar[tuple[Key, ...]] = (
        *(key for key in KEYS if key.theirs not in CHANGED),
        Key("hidden_size", "encoder.width", 256),
        Key("num_attention_heads", "encoder.mixer.heads", 4),
        Key("intermediate_size", "encoder.feed_forward.width", 1024),
        NARROW,
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **AXES,
        "encoder.embeddings.kind": ("factorised", "pieces"),
        "output.activation": ("gelu",),
    }

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        """The stock head of the discriminator takes the activation of the blocks, ours is GELU."""
        kind: str = recipe.encoder.feed_forward.kind  # type: ignore[attr-defined]
        asks = any(isinstance(o, ReplacedToken) for o in recipe.objectives.values())
        if asks and kind != "gelu":
            return [f"encoder.feed_forward.kind is {kind} (Electra: gelu, as in its head)"]
        return []

    def received(self, tensors: Tensors, config: Config) -> Tensors:
        activation = config.get("hidden_act", "gelu")
        if activation != "gelu" and any(n.startswith("heads.replaced-token.") for n in tensors):
            raise UserError(
                f"hidden_act is {activation!r}, which the head of the discriminator takes as well: "
                f"only gelu can be read"
            )
        return super().received(tensors, config)

    def described(self, settings: dict[str, Any]) -> dict[str, Any]:
        """A table that is as wide as the encoder is no factorised one."""
        encoder = settings["encoder"]
        if encoder["embeddings"]["width"] == encoder["width"]:
            encoder["embeddings"]["kind"] = "pieces"
            del encoder["embeddings"]["width"]
        return settings
