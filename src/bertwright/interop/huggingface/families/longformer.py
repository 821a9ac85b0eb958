"""Longformer (Beltagy et al. 2020): RoBERTa with sliding windows and global attention."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.config_keys import StockConfig
from bertwright.interop.huggingface.families.roberta import Roberta
from bertwright.interop.huggingface.head_types import QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION
from bertwright.modules.attention.mask import (
    DilatedWindowVisibility,
    GlobalVisibility,
    OrVisibility,
    Visibility,
    WindowVisibility,
)
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe

ATTENTION = "encoder.blocks.#.sublayers.attention"
STOCK_SELF_ATTENTION = "encoder.layer.#.attention.self"
GLOBAL_POSITIONS_KEY = "global_positions"
"""Our own config key for the positions with global attention; stock classes ignore it."""
TEXT_NAMES = ("first", "second")
"""The texts of a pair; the second one begins with the separator."""
MIN_WINDOW_SIZE = 2
"""Tokens on each side; with one, the stock class fails on tensors of the wrong shape."""


class Longformer(Roberta):
    """RoBERTa with separate projections for global attention.

    Stock classes take a ``global_attention_mask`` per batch. Imported models have the default of
    the stock class: the first position for sequence classification and question answering,
    otherwise none. :func:`with_global_question_attention` adds the question.
    """

    model_type = "longformer"
    class_name = "Longformer"
    recipe_name = "longformer"
    base_model_prefix = "longformer"
    encoder_table = (
        *Roberta.encoder_table,
        (
            f"{ATTENTION}.global_attention.projection",
            (
                f"{STOCK_SELF_ATTENTION}.query_global",
                f"{STOCK_SELF_ATTENTION}.key_global",
                f"{STOCK_SELF_ATTENTION}.value_global",
            ),
        ),
    )

    fixed_axes = Roberta.fixed_axes | {
        "encoder.visibility.kind": ("or",),
        "encoder.mixer.global_projections": (True,),
    }

    def recipe_settings(self, config: StockConfig) -> dict[str, Any]:
        dilation = config.get("attention_dilation") or [1]
        if {*(dilation if isinstance(dilation, list) else [dilation])} != {1}:
            raise UserError(
                f"attention_dilation is {dilation}, which the stock class ignores: only windows "
                f"without gaps are supported"
            )
        window = config.get("attention_window", 512)
        widths = [window] if isinstance(window, int) else window
        windows = {"kind": "windows", "sizes": [width // 2 for width in widths]}
        if len({*widths}) == 1:
            windows = {"kind": "window", "size": widths[0] // 2}
        architecture = next(iter(config.get("architectures") or [""]))
        global_rule = {
            "kind": "global",
            "first": int(architecture.endswith((SEQUENCE_CLASSIFICATION, QUESTION_ANSWERING))),
        }
        global_rule |= config.get(GLOBAL_POSITIONS_KEY) or {}
        settings = super().recipe_settings(config)
        settings["encoder"]["visibility"] = {"kind": "or", "rules": [windows, global_rule]}
        return settings

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        sizes = _window_sizes(recipe)
        assert sizes is not None, "extra_mismatches excludes other rules"
        widths = [2 * size for size in sizes]
        window = widths if len({*widths}) > 1 else widths[0]
        _, global_rule = _window_and_global(recipe.encoder.visibility)
        assert global_rule is not None, "extra_mismatches excludes other rules"
        global_positions = global_rule.model_dump(
            mode="json", include={"first", "last", "positions"}
        )
        config = super().extend_config(config, recipe)
        return {**config, "attention_window": window, GLOBAL_POSITIONS_KEY: global_positions}

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        reasons = super().extra_mismatches(recipe, special_tokens)
        windows, global_rule = _window_and_global(recipe.encoder.visibility)
        if global_rule is not None and global_rule.block != 1:
            reasons.append(
                "encoder.visibility counts global positions in blocks (Longformer: tokens)"
            )
        if windows is None or global_rule is None:
            reasons.append("encoder.visibility is another rule (Longformer: window | global)")
        elif (sizes := _window_sizes(recipe)) is None:
            reasons.append(
                "encoder.visibility is dilated (Longformer: windows without gaps, since the stock "
                "class ignores attention_dilation)"
            )
        elif min(sizes, default=MIN_WINDOW_SIZE) < MIN_WINDOW_SIZE:
            reasons.append(
                f"encoder.visibility has a window of {min(sizes)} (Longformer: at least "
                f"{MIN_WINDOW_SIZE}, since the stock class fails with a smaller one)"
            )
        return reasons

    def extra_inputs(self, visibility: Visibility, token_info: TokenInfo) -> Mapping[str, Tensor]:
        mask = visibility.global_tokens(token_info.with_text_lengths())
        return {} if mask is None else {"global_attention_mask": mask.long()}

    def usage_note(self, visibility: Visibility) -> str:
        _, global_rule = _window_and_global(visibility)
        assert global_rule is not None, "extra_mismatches excludes other rules"
        positions = [
            f"the {end} {'token' if count == 1 else f'{count} tokens'} of each sequence"
            for end, count in (("first", global_rule.first), ("last", global_rule.last))
            if count
        ]
        positions += [f"position {position} (the first is 0)" for position in global_rule.positions]
        if global_rule.segment is not None:
            positions.append(f"all tokens of the {TEXT_NAMES[global_rule.segment]} text")
        described = " and at ".join(positions)
        return f"`global_attention_mask`: 1 at {described}, 0 elsewhere" if described else ""


def _window_and_global(visibility: Visibility) -> tuple[Visibility | None, GlobalVisibility | None]:
    """Return the window and the global part of a visibility that combines the two."""
    rules = visibility.rules if isinstance(visibility, OrVisibility) else ()
    if len(rules) != 2:
        return None, None
    windows = (
        rule
        for rule in rules
        if isinstance(rule, DilatedWindowVisibility)
        or (isinstance(rule, WindowVisibility) and rule.block == 1)
    )
    return next(windows, None), next(
        (rule for rule in rules if isinstance(rule, GlobalVisibility)), None
    )


def _window_sizes(recipe: Recipe) -> list[int] | None:
    """Return the window size of each block; None if any head is dilated."""
    window_rule, _ = _window_and_global(recipe.encoder.visibility)
    blocks = range(len(recipe.encoder.depth.sublayer_orders()))
    windows = [None if window_rule is None else window_rule.at_block(block) for block in blocks]
    sizes = [window.size for window in windows if isinstance(window, WindowVisibility)]
    return sizes if len(sizes) == len(windows) else None
