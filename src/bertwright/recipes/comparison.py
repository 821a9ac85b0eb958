"""Two recipes side by side: only the axes that differ, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.recipes.schema import Recipe

ABSENT = "none"


@dataclass(frozen=True)
class Difference:
    """One axis on which two recipes differ."""

    axis: str
    first: str
    second: str


def differences(first: Recipe, second: Recipe) -> list[Difference]:
    """The axes on which two recipes differ, in the order of the recipe."""
    one, two = first.as_dict(), second.as_dict()
    for plain in (one, two):
        plain.pop("name")
        plain.pop("source")
    return list(_compare("", one, two))


def _compare(path: str, one: Any, two: Any) -> list[Difference]:
    if one == two:
        return []
    both = isinstance(one, Mapping) and isinstance(two, Mapping)
    if both and one.get("kind") == two.get("kind"):
        names = dict.fromkeys([*one, *two])
        found = [_compare(f"{path}.{n}".lstrip("."), one.get(n), two.get(n)) for n in names]
        return [difference for group in found for difference in group]
    return [Difference(path, in_words(one), in_words(two))]


def in_words(value: Any) -> str:
    """A choice as a person would say it: ``learned (size 512)``."""
    if value is None:
        return ABSENT
    if isinstance(value, Mapping):
        inner = {n: v for n, v in value.items() if n != "kind" and v not in (None, {}, [])}
        if value.get("kind") == "constant":
            return in_words(value["value"])
        settings = ", ".join(f"{name} {in_words(v)}" for name, v in inner.items())
        kind = value.get("kind")
        if kind is None:
            return settings
        return f"{kind} ({settings})" if settings else str(kind)
    if isinstance(value, list):
        return "; ".join(f"[{in_words(v)}]" for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
