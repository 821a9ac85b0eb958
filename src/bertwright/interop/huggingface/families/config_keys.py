"""Keys of config.json with their recipe keys, and recipe axes without a config key."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bertwright.core.config import quote
from bertwright.core.errors import UserError

StockConfig = dict[str, Any]
BOS_EOS_PAD = {"bos_token_id": "start", "eos_token_id": "end", "pad_token_id": "pad"}


@dataclass(frozen=True)
class ConfigKey:
    """A key of config.json, the equivalent recipe key, and the stock default.

    ``value_map`` translates stock values to recipe values if they differ.
    """

    stock_key: str
    recipe_path: str
    default: Any
    value_map: Mapping[Any, Any] | None = None

    def to_recipe(self, config: StockConfig) -> Any:
        """Return the recipe value of this key in a configuration."""
        value = config.get(self.stock_key, self.default)
        if self.value_map is None:
            return value
        if not isinstance(value, Hashable) or value not in self.value_map:
            choices = ", ".join(map(str, self.value_map))
            raise UserError(f"{self.stock_key} is {quote(value)}: supported are {choices}")
        return self.value_map[value]

    def to_stock(self, value: Any) -> Any:
        """Return the stock value of a recipe value; None if there is none."""
        if self.value_map is None:
            return value
        return next((theirs for theirs, ours in self.value_map.items() if ours == value), None)


UNSUPPORTED_AXES: dict[str, tuple[Any, ...]] = {
    "decoder": (None,),
    "decoder.mixer": (None,),
    "encoder.bottleneck": (None,),
    "encoder.pruned_sizes": (None,),
    "encoder.depth.every": (1,),
    "encoder.depth.order": ("sf",),
    "encoder.depth.sharing": ("none",),
    "encoder.embeddings.query_vector": (False,),
    "encoder.embeddings.languages": ([],),
    "encoder.embeddings.scaled": (False,),
    "encoder.embeddings.tasks": (0,),
    "encoder.feed_forward.gate": ("first",),
    "encoder.sliding_window": (None,),
    "encoder.value_embeddings": (None,),
    "encoder.mixer.gate": (None,),
    "encoder.mixer.global_projections": (False,),
    "encoder.mixer.scaled": (True,),
    "encoder.mixer.width": (None,),
    "encoder.norm.gain": (True,),
    "encoder.norm.skip_first": (False,),
    "encoder.residual.kind": ("plain",),
    "encoder.residual.start": (0,),
    "output.norm": (None,),
    "output.scaled": (False,),
}
"""Axes that hardly any stock class has, with the values that are equivalent to not having them."""

COMMON_AXES: dict[str, tuple[Any, ...]] = {
    "encoder.depth.kind": ("stack",),
    "encoder.embeddings.kind": ("tokens",),
    "encoder.embeddings.norm": (True,),
    "encoder.memory_length": (0,),
    "encoder.positions.kind": ("learned",),
    "encoder.visibility.kind": ("bidirectional", "document"),
    "encoder.mixer.kind": ("attention",),
    "encoder.mixer.bias": (True,),
    "encoder.feed_forward.bias": (True,),
    "encoder.norm.kind": ("layernorm",),
    "encoder.norm.placement": ("post",),
    "encoder.norm.bias": (True,),
}
"""The fixed axes of most families."""


def without(axes: Mapping[str, tuple[Any, ...]], *paths: str) -> dict[str, tuple[Any, ...]]:
    """Return the axes without those at ``paths``."""
    return {path: choices for path, choices in axes.items() if path not in paths}


def with_defaults(keys: Iterable[ConfigKey], **defaults: Any) -> tuple[ConfigKey, ...]:
    """Return config keys with other defaults, by stock key."""
    return tuple(replace(key, default=defaults.get(key.stock_key, key.default)) for key in keys)


TIE_KEY = ConfigKey("tie_word_embeddings", "output.kind", True, {True: "tied", False: "untied"})
