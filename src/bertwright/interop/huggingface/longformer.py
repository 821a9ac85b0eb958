"""Longformer (Beltagy et al. 2020): RoBERTa that sees a window and a few places of all."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Either, Global, Visibility, Window, Windows
from bertwright.errors import UserError
from bertwright.interop.huggingface.family import Config
from bertwright.interop.huggingface.purposes import OPTIONS, SPANS, TEXTS, Classifier
from bertwright.interop.huggingface.renaming import Table
from bertwright.interop.huggingface.roberta import Roberta
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

ATTENTION = "encoder.blocks.#.sublayers.attention"
SELF = "encoder.layer.#.attention.self"
PLACES = "global_places"
"""A key of ours in config.json, which no stock class reads: what each must be told."""
NAMES = ("first", "second")
"""Of the texts of a row; the second begins with what separates them."""


class Longformer(Roberta):
    """As RoBERTa, with a second projection for places that see everything.

    A stock class may be told with every batch which those are (``global_attention_mask``). What is
    read here has those that the class has by itself: the first of each row where it classifies
    texts or answers questions, none otherwise; :func:`with_wide_questions` adds those of a
    question.
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
    classifiers: ClassVar[dict[str, Classifier]] = {
        **Roberta.classifiers,
        OPTIONS: replace(
            Roberta.classifiers[OPTIONS],
            table=(
                ("head.enter.dense", ("longformer.pooler.dense",)),
                ("head.out", ("classifier",)),
            ),
        ),
    }
    axes: ClassVar[dict[str, tuple[Any, ...]]] = {
        **Roberta.axes,
        "encoder.visibility.kind": ("or",),
        "encoder.mixer.global_projections": (True,),
    }

    def settings(self, config: Config) -> dict[str, Any]:
        dilation = config.get("attention_dilation") or [1]
        if {*(dilation if isinstance(dilation, list) else [dilation])} != {1}:
            raise UserError(
                f"attention_dilation is {dilation}, which the stock class ignores: only windows "
                f"without gaps can be read"
            )
        window = config.get("attention_window", 512)
        widths = [window] if isinstance(window, int) else window
        rule = {"kind": "windows", "sizes": [width // 2 for width in widths]}
        if len({*widths}) == 1:
            rule = {"kind": "window", "size": widths[0] // 2}
        architecture = next(iter(config.get("architectures") or [""]))
        wide = {"kind": "global", "first": int(architecture.endswith((TEXTS, SPANS)))}
        wide |= config.get(PLACES) or {}
        settings = super().settings(config)
        settings["encoder"]["visibility"] = {"kind": "or", "rules": [rule, wide]}
        return settings

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        sizes = _sizes(recipe)
        assert sizes is not None, "there are reasons against any other rule"
        widths = [2 * size for size in sizes]
        window = widths if len({*widths}) > 1 else widths[0]
        _, wide = _parts(recipe.encoder.visibility)
        assert wide is not None, "there are reasons against any other rule"
        places = wide.model_dump(mode="json", include={"first", "last", "positions"})
        config = super().finished(config, recipe, specials)
        return {**config, "attention_window": window, PLACES: places}

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        reasons = super().further_reasons(recipe, specials)
        windows, wide = _parts(recipe.encoder.visibility)
        if wide is not None and wide.block != 1:
            reasons.append("encoder.visibility counts global places in blocks (Longformer: pieces)")
        if windows is None or wide is None:
            reasons.append(
                "encoder.visibility is not a window or global places (Longformer: window | global)"
            )
        elif _sizes(recipe) is None:
            reasons.append(
                "encoder.visibility is dilated (Longformer: windows without gaps, since the stock "
                "class ignores attention_dilation)"
            )
        return reasons

    def inputs(self, rule: Visibility, coordinates: Coordinates) -> Mapping[str, Tensor]:
        wide = rule.wide(coordinates.measured())
        return {} if wide is None else {"global_attention_mask": wide.long()}

    def told(self, rule: Visibility) -> str:
        _, wide = _parts(rule)
        assert wide is not None, "there are reasons against any other rule"
        places = [
            f"the {end} {'piece' if number == 1 else f'{number} pieces'} of each row"
            for end, number in (("first", wide.first), ("last", wide.last))
            if number
        ]
        places += [f"place {position} (the first is 0)" for position in wide.positions]
        if wide.segment is not None:
            places.append(f"those of the {NAMES[wide.segment]} text")
        said = " and at ".join(places)
        return f"`global_attention_mask`: 1 at {said}, 0 elsewhere" if said else ""


def _parts(rule: Visibility) -> tuple[Visibility | None, Global | None]:
    """The windows and the global places of a rule that is one of both."""
    rules = rule.rules if isinstance(rule, Either) else ()
    if len(rules) != 2:
        return None, None
    windows = (
        r for r in rules if isinstance(r, Windows) or (isinstance(r, Window) and r.block == 1)
    )
    return next(windows, None), next((r for r in rules if isinstance(r, Global)), None)


def _sizes(recipe: Recipe) -> list[int] | None:
    """How far the places of each block see; None where some head leaves places out."""
    seen, _ = _parts(recipe.encoder.visibility)
    blocks = range(len(recipe.encoder.depth.orders()))
    windows = [None if seen is None else seen.at_block(block) for block in blocks]
    sizes = [window.size for window in windows if isinstance(window, Window)]
    return sizes if len(sizes) == len(windows) else None
