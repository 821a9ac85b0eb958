"""XLM (Lample and Conneau 2019): post-norm, a vector for each language, no transform."""

from collections.abc import Mapping
from typing import Any, ClassVar

from bertwright.encoder.visibility import Visibility
from bertwright.errors import UserError
from bertwright.interop.huggingface.bert import AXES, Bert
from bertwright.interop.huggingface.family import Config, Family, Key
from bertwright.interop.huggingface.purposes import BARE, TEXTS, WORDS, Classifier
from bertwright.interop.huggingface.renaming import Table, Tensors
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

BLOCK = "encoder.blocks.#"

SUMMARY: dict[str, Any] = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
}
"""What the head over a whole text is told, as it can be read."""


class Xlm(Family):
    """Modules are listed by kind, not by layer; the feed-forward is four times as wide as the rest.

    The stock class adds the vector of a language only where it is told ``langs``.
    """

    model_type: ClassVar[str] = "xlm"
    class_name: ClassVar[str] = "XLM"
    recipe: ClassVar[str] = "xlm"
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, None): "WithLMHeadModel",
        (False, None): BARE,
    }
    prefix: ClassVar[str] = "transformer"
    encoder_table: ClassVar[Table] = (
        ("encoder.embeddings.pieces", ("embeddings",)),
        ("encoder.embeddings.positions.table", ("position_embeddings",)),
        ("encoder.embeddings.languages", ("lang_embeddings",)),
        ("encoder.embeddings.join.norm", ("layer_norm_emb",)),
        (
            f"{BLOCK}.sublayers.attention.projection",
            tuple(f"attentions.#.{name}_lin" for name in "qkv"),
        ),
        (f"{BLOCK}.sublayers.attention.output", ("attentions.#.out_lin",)),
        (f"{BLOCK}.norms.attention", ("layer_norm1.#",)),
        (f"{BLOCK}.sublayers.feed_forward.up", ("ffns.#.lin1",)),
        (f"{BLOCK}.sublayers.feed_forward.down", ("ffns.#.lin2",)),
        (f"{BLOCK}.norms.feed_forward", ("layer_norm2.#",)),
    )
    head_table: ClassVar[Table] = (
        ("output.bias", ("pred_layer.proj.bias",)),
        ("output.table", ("pred_layer.proj",)),
    )
    classifiers: ClassVar[dict[str, Classifier]] = {
        TEXTS: Classifier(("plain",), ("first",), (("head.out", ("sequence_summary.summary",)),)),
        WORDS: Bert.classifiers[WORDS],
    }
    pieces: ClassVar[str] = "embeddings.weight"
    decoder: ClassVar[str] = "pred_layer.proj"
    output_bias: ClassVar[str | None] = "pred_layer.proj.bias"
    special_pieces: ClassVar[Mapping[str, str]] = {"mask": "<special1>"}
    longest: ClassVar[int] = 512
    keys: ClassVar[tuple[Key, ...]] = (
        Key("emb_dim", "encoder.width", 2048),
        Key("n_layers", "encoder.depth.layers", 12),
        Key("n_heads", "encoder.mixer.heads", 16),
        Key("gelu_activation", "encoder.feed_forward.kind", True, {True: "gelu", False: "relu"}),
        Key("layer_norm_eps", "encoder.norm.epsilon", 1e-12),
        Key("dropout", "encoder.dropout", 0.1),
        Key("attention_dropout", "encoder.mixer.dropout", 0.1),
        Key("max_position_embeddings", "encoder.positions.size", 512),
        Key("languages", "encoder.embeddings.languages", []),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **AXES,
        "encoder.embeddings.segments": (0,),
        "encoder.positions.offset": (0,),
        "encoder.mixer.bias": (True,),
        "encoder.feed_forward.bias": (True,),
        "encoder.norm.bias": (True,),
        "output.transform": (False,),
        "output.transform_bias": (True, False),
        "output.bias": (True,),
    }
    required: ClassVar[dict[str, Any]] = {
        "sinusoidal_embeddings": False,
        "causal": False,
        "asm": False,
        "is_encoder": True,
    }

    def simplified(self, config: Config) -> Config:
        number = config.get("n_langs", 1)
        named: dict[str, int] = config.get("lang2id") or {str(n): n for n in range(number)}
        told_apart = number > 1 and config.get("use_lang_emb", True)
        languages = sorted(named, key=lambda name: named[name]) if told_apart else []
        return {**config, "languages": languages}

    def received(self, tensors: Tensors, config: Config) -> Tensors:
        texts = next(iter(config.get("architectures") or [""])).endswith(TEXTS)
        for name, value in SUMMARY.items():
            if texts and config.get(name, value) != value:
                raise UserError(f"{name} is {config[name]!r}: what can be read is {value!r}")
        return tensors

    def told(self, rule: Visibility) -> str:
        return "`langs`: the number of its language at every place, where there are any"

    def lacks_alone(self, recipe: Recipe, longest: int | None) -> str | None:
        return super().lacks_alone(recipe, longest) if recipe.encoder.embeddings.languages else None

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        languages: list[str] = config.pop("languages")
        return {
            **config,
            **self.required,
            "n_langs": max(1, len(languages)),
            "use_lang_emb": bool(languages),
            "lang2id": {name: number for number, name in enumerate(languages)},
            "id2lang": {str(number): name for number, name in enumerate(languages)},
            "pad_token_id": specials.pad,
            "bos_token_id": specials.start,
            "eos_token_id": specials.end,
            "mask_token_id": specials.mask,
            "mask_index": specials.mask,
            "unk_index": specials.unknown,
        }

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        encoder = recipe.encoder
        reasons: list[str] = []
        inner = encoder.feed_forward.inner(encoder.width)
        if inner != 4 * encoder.width:
            reasons.append(f"encoder.feed_forward.width is {inner} (XLM: {4 * encoder.width})")
        if len(encoder.embeddings.languages) == 1:
            reasons.append("encoder.embeddings.languages names one (XLM: none, or several)")
        return reasons
