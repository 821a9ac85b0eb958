"""Comparison of two recipes: the axes on which they differ, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.recipes.schema import Recipe

NOT_SET = "none"


@dataclass(frozen=True)
class Difference:
    """An axis on which two recipes differ."""

    axis: str
    first: str
    second: str


def differences(first: Recipe, second: Recipe) -> list[Difference]:
    """Return the axes on which two recipes differ, in recipe order."""
    first_settings, second_settings = first.as_dict(), second.as_dict()
    for plain in (first_settings, second_settings):
        plain.pop("name")
        plain.pop("source")
    return list(_compare("", first_settings, second_settings))


def _compare(path: str, first: Any, second: Any) -> list[Difference]:
    if first == second:
        return []
    both = isinstance(first, Mapping) and isinstance(second, Mapping)
    if both and first.get("kind") == second.get("kind"):
        names = dict.fromkeys([*first, *second])
        groups = [_compare(f"{path}.{n}".lstrip("."), first.get(n), second.get(n)) for n in names]
        return [difference for group in groups for difference in group]
    return [Difference(path, describe_value(first), describe_value(second))]


def describe_value(value: Any) -> str:
    """Return a setting in words: ``learned (size 512)``."""
    if value is None:
        return NOT_SET
    if isinstance(value, Mapping):
        inner = {n: v for n, v in value.items() if n != "kind" and v not in (None, {}, [])}
        if value.get("kind") == "constant":
            return describe_value(value["value"])
        settings = ", ".join(f"{name} {describe_value(v)}" for name, v in inner.items())
        kind = value.get("kind")
        if kind is None:
            return settings
        return f"{kind} ({settings})" if settings else str(kind)
    if isinstance(value, list):
        return "; ".join(f"[{describe_value(v)}]" for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
