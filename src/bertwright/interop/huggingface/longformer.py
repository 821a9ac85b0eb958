"""Longformer (Beltagy et al. 2020): RoBERTa that sees a window and a few places of all."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Either, Global, Visibility, Window
from bertwright.errors import UserError
from bertwright.interop.huggingface.family import Config
from bertwright.interop.huggingface.renaming import Table
from bertwright.interop.huggingface.roberta import Roberta
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

ATTENTION = "encoder.blocks.#.sublayers.attention"
SELF = "encoder.layer.#.attention.self"


class Longformer(Roberta):
    """As RoBERTa, with a second projection for places that see everything.

    The stock class is told with every batch which those are (``global_attention_mask``); what is
    read here has the first of each text, as ``LongformerForSequenceClassification`` has by itself.
    """

    model_type: ClassVar[str] = "longformer"
    class_name: ClassVar[str] = "Longformer"
    recipe: ClassVar[str] = "longformer"
    prefix: ClassVar[str] = "longformer"
    encoder_table: ClassVar[Table] = (
        *Roberta.encoder_table,
        (
            f"{ATTENTION}.global_rows.projection",
            (f"{SELF}.query_global", f"{SELF}.key_global", f"{SELF}.value_global"),
        ),
    )
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **Roberta.axes,
        "encoder.visibility.kind": ("or",),
        "encoder.mixer.global_projections": (True,),
    }

    def settings(self, config: Config) -> dict[str, Any]:
        window = config.get("attention_window", 512)
        sizes = {window} if isinstance(window, int) else set(window)
        if len(sizes) > 1:
            raise UserError(f"attention_window is {window}: blocks of one window can be read")
        (size,) = sizes
        settings = super().settings(config)
        settings["encoder"]["visibility"] = {
            "kind": "or",
            "rules": [{"kind": "window", "size": size // 2}, {"kind": "global"}],
        }
        return settings

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        window, _ = _parts(recipe.encoder.visibility)
        assert window is not None, "there are reasons against any other rule"
        size = 2 * window.size
        return {**super().finished(config, recipe, specials), "attention_window": size}

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        reasons = super().further_reasons(recipe, specials)
        if None in _parts(recipe.encoder.visibility):
            reasons.append(
                "encoder.visibility is not a window or global places (Longformer: window | global)"
            )
        return reasons

    def inputs(self, rule: Visibility, coordinates: Coordinates) -> Mapping[str, Tensor]:
        wide = rule.wide(coordinates.measured())
        return {} if wide is None else {"global_attention_mask": wide.long()}


def _parts(rule: Visibility) -> tuple[Window | None, Global | None]:
    """The window and the global places of a rule that is one of both."""
    rules = rule.rules if isinstance(rule, Either) else ()
    if len(rules) != 2:
        return None, None
    window = next((r for r in rules if isinstance(r, Window) and r.block == 1), None)
    return window, next((r for r in rules if isinstance(r, Global)), None)
