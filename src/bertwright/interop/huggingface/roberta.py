"""RoBERTa (Liu et al. 2019): BERT's encoder, with positions counted from the padding's id on."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.interop.huggingface.bert import AXES, KEYS, Bert, with_zeros
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import (
    OPTIONS,
    OVER_TEXTS,
    SPANS,
    TEXTS,
    WORDS,
    Classifier,
    Net,
)
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials


class Roberta(Bert):
    """As BERT, but that position 0 is the row after the padding's id, that the output's activation
    is GELU whatever the encoder's, and that nothing is asked of pairs."""

    model_type: ClassVar[str] = "roberta"
    class_name: ClassVar[str] = "Roberta"
    recipe: ClassVar[str] = "roberta"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = Family.purposes
    prefix: ClassVar[str] = "roberta"
    head_table: ClassVar[Table] = (
        ("output.transform.dense", ("lm_head.dense",)),
        ("output.transform.norm", ("lm_head.layer_norm",)),
        ("output.bias", ("lm_head.bias",)),
        ("output.table", ("lm_head.decoder",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(
            ("dense", "pooler"),
            ("first",),
            OVER_TEXTS,
        ),
        WORDS: Bert.classifiers[WORDS],
        SPANS: Bert.classifiers[SPANS],
        OPTIONS: Classifier(
            ("pooler", "dense"),
            ("first",),
            (("head.enter.dense", ("roberta.pooler.dense",)), ("head.out", ("classifier",))),
        ),
    }
    decoder: ClassVar[str] = "lm_head.decoder"
    output_bias: ClassVar[str | None] = "lm_head.bias"
    keys: ClassVar[tuple[Key, ...]] = (*KEYS, Key("offset", "encoder.positions.offset", 2))
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {**AXES, "output.activation": ("gelu",)}

    def simplified(self, config: Config) -> Config:
        padding = config.get("pad_token_id")
        offset = 2 if padding is None else padding + 1
        size = config.get("max_position_embeddings", 512) - offset
        return {**config, "offset": offset, "max_position_embeddings": size}

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        config = super().finished(config, recipe, specials)
        config["max_position_embeddings"] += config.pop("offset")
        return {**config, "bos_token_id": specials.start, "eos_token_id": specials.end}

    def completed(self, net: Net) -> Tensors:
        return with_zeros(net)

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        offset, first = getattr(recipe.encoder.positions, "offset", None), specials.pad + 1
        if offset == first:
            return []
        return [f"encoder.positions.offset is {offset} (Roberta: the padding's id and 1, {first})"]


class XlmRoberta(Roberta):
    """RoBERTa under another name: a vocabulary of a hundred languages (Conneau et al. 2020)."""

    model_type: ClassVar[str] = "xlm-roberta"
    class_name: ClassVar[str] = "XLMRoberta"
