"""Which recipes have a setting or an objective."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from bertwright.recipes import Recipe
from bertwright.recipes.loading import apply_overrides, read_recipe, system_names

DEFAULT_RECIPE = "modern-tiny"
"""The recipe for settings that name none."""


def recipes_with_setting(setting: str) -> list[str]:
    """Return the systems whose recipe states a setting, as its own or its parents'."""
    stated = apply_overrides({}, [_split_setting(setting)[1]])
    return [name for name, recipe in _recipes().items() if _contains(recipe, stated)]


def check_setting(setting: str) -> None:
    """Raise UserError for a setting that no recipe has, and the named one does not accept."""
    if not recipes_with_setting(setting):
        Recipe.load(*_split_setting(setting))


def _split_setting(setting: str) -> tuple[str, str]:
    """Return the recipe and the override in ``[RECIPE ]key.path=value``."""
    first, _, rest = setting.partition(" ")
    return (DEFAULT_RECIPE, setting) if "=" in first else (first, rest)


def recipes_with_objective(kind: str) -> list[str]:
    """Return the systems with an objective of a kind."""
    return [
        name
        for name, recipe in _recipes().items()
        if any(
            settings is not None and settings.get("kind", objective) == kind
            for objective, settings in recipe["objectives"].items()
        )
    ]


@cache
def _recipes() -> dict[str, dict[str, Any]]:
    """Return the recipes of all systems, with their parents merged in."""
    return {name: read_recipe(f"{name}-base") for name in system_names()}


def _contains(value: Any, stated: Any) -> bool:
    """Return True if a mapping has all keys of another, with equal values."""
    if not isinstance(stated, Mapping):
        return bool(value == stated)
    if isinstance(value, str):
        value = {"kind": value}
    return isinstance(value, Mapping) and all(
        key in value and _contains(value[key], inner) for key, inner in stated.items()
    )
