"""Every constant of every recipe has the published value, with its source.

``tests/parity/published`` holds a table for each system, written from the paper or the released
code and not from the recipe. Each constant of the resolved recipe must be in it, except those of
the run, such as the seed, and those that switch a mechanism off.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bertwright.modules.mixer import MultiHeadConfig
from bertwright.recipes import Recipe
from bertwright.recipes.loading import read_system_file, read_yaml, size_names, system_names

TABLES = Path(__file__).parent / "published"
UNPUBLISHED = {"modern"}
"""Recipes that reproduce no publication."""

SETTINGS_OF_A_RUN = re.compile(
    r"(name|source|family|seed|precision|compile|micro_batch_tokens|checkpoint_every"
    r"|checkpoints_kept|evaluate_every|vectors\..*|.*\.kernel|.*\.seed|pooler)"
)

# A leaf with this value switches its mechanism off, or is the only thing that could be meant.
NEUTRAL: Mapping[str, Any] = {
    "assembly.copies": 1,
    "decoder.source": "tokens",
    "decoder.tied": False,
    "text.tokenizer.sentinels": 0,
    "assembly.alike": False,
    "assembly.backward": False,
    "assembly.languages": [],
    "assembly.weights": {},
    "assembly.separators": 1,
    "encoder.bottleneck": None,
    "encoder.depth.drop": 0.0,
    "encoder.depth.every": 1,
    "encoder.depth.groups": 1,
    "encoder.depth.kind": "stack",
    "encoder.depth.order": "sf",
    "encoder.depth.sharing": "none",
    "encoder.embeddings.embedding_dropout": 0.0,
    "encoder.embeddings.kind": "tokens",
    "encoder.embeddings.languages": [],
    "encoder.embeddings.query_vector": False,
    "encoder.embeddings.scaled": False,
    "encoder.embeddings.word_dropout": 0.0,
    "encoder.embeddings.tasks": 0,
    "encoder.feed_forward.bias": True,
    "encoder.feed_forward.dropout": 0.0,
    "encoder.initialisation.scale_residual": False,
    "encoder.memory_length": 0,
    "encoder.mixer.bias": True,
    "encoder.mixer.gate": None,
    "encoder.mixer.global_projections": False,
    "encoder.mixer.kind": "attention",
    "encoder.mixer.scaled": True,
    "encoder.norm.bias": True,
    "encoder.norm.gain": True,
    "encoder.norm.kind": "layernorm",
    "encoder.norm.skip_first": False,
    "encoder.output_dropout": 0.0,
    "encoder.positions.dropout": 0.0,
    "encoder.positions.offset": 0,
    "encoder.pruned_sizes": None,
    "encoder.residual.kind": "plain",
    "encoder.residual.start": 0,
    "encoder.sliding_window": None,
    "encoder.value_embeddings": None,
    "decoder": None,
    "decoder.kind": "transformer",
    "output.norm": None,
    "output.scaled": False,
    "output.smoothing": 0.0,
    "output.z_loss": 0.0,
    "objectives.*.dense": True,
    "objectives.*.fraction": None,
    "objectives.*.task": None,
    "objectives.*.weight": 1.0,
    "objectives.*.selection.independent": False,
    "objectives.*.selection.rarity": 0.0,
    "objectives.*.shift": 0,
    "phases.*.batch": 1.0,
    "phases.*.depth": 1.0,
    "phases.*.dropout": 1.0,
    "phases.*.fraction": 1.0,
    "phases.*.objectives": None,
    "phases.*.trainable_layers": None,
    "optimiser.layer_decay": 1.0,
    "schedule.floor": 0.0,
    "ema_decay": None,
}


LENGTH_OF_A_PHASE = re.compile(r"phases\.\d+\.length")

# A setting is used only where another one has a value.
USED_IF: Mapping[str, tuple[str, Any]] = {
    r"schedule\.cooldown": ("schedule.decay", "trapezoid"),
    r"(.+)\.corruption\.copies": (r"\1.corruption.when", "static"),
    r"(.+)\.selection\.stop": (r"\1.selection.law", "geometric"),
    r"output\.(activation|transform_bias)": ("output.transform", True),
}


@dataclass
class PublishedTable:
    """The published values of a system by path, and those that are not published."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    deviating: set[str] = field(default_factory=set[str])
    unpublished: set[str] = field(default_factory=set[str])
    choices: set[str] = field(default_factory=set[str])

    def is_choice(self, path: str) -> bool:
        """Return whether a path is in a part of the recipe that is not published at all."""
        return any(path == prefix or path.startswith(f"{prefix}.") for prefix in self.choices)

    def add(self, groups: Iterable[Mapping[str, Any]]) -> None:
        """Add groups of values; each states its source."""
        for group in groups:
            assert group.keys() <= {"source", "values", "instead"}, group
            source, values = group["source"], group.get("values", {})
            assert str(source).strip(), group
            for path, value in values.items():
                self.values[path] = evaluate(value)
                self.deviating.discard(path)
                (self.unpublished.add if source == "not published" else self.unpublished.discard)(
                    path
                )
            # What the recipe does instead of what is published, and names as a deviation.
            for path, value in group.get("instead", {}).items():
                assert set(value) == {"published", "here"}, path
                self.values[path] = evaluate(value["here"])
                self.deviating.add(path)

    def remove(self, prefixes: Iterable[str]) -> None:
        """Remove mechanisms of the parent."""
        for prefix in prefixes:
            paths = {p for p in self.values if p == prefix or p.startswith(f"{prefix}.")}
            assert paths, f"{prefix} is not in the table of the parent"
            for path in paths:
                del self.values[path]


class Rounded(float):
    """A quotient, such as steps of a warmup over all steps, which a recipe rounds to 1 %."""


def evaluate(value: Any) -> Any:
    """Return a value, or the result of products and one division, such as 256 * 512 / 2."""
    if not isinstance(value, str) or not re.fullmatch(r"[\d.e+-]+( [*/] [\d.e+-]+)+", value):
        return value
    top, _, bottom = value.partition(" / ")
    numerator = math.prod(float(factor) for factor in top.split(" * "))
    return Rounded(numerator / float(bottom)) if bottom else numerator


def is_equal(actual: Any, published: Any) -> bool:
    return (
        math.isclose(actual, published, rel_tol=0.01)
        if isinstance(published, Rounded)
        else bool(actual == published)
    )


@cache
def read_table(system: str) -> Mapping[str, Any]:
    table = read_yaml(TABLES / f"{system}.yaml")
    keys = {"publication", "as", "why", "without", "constants", "sizes", "our_sizes", "choices"}
    assert table.keys() <= keys, table.keys() - keys
    assert table["publication"]
    assert ("as" in table) == ("why" in table)
    return table


def published_table(system: str, size: str | None = None) -> PublishedTable:
    """Return the table of a system, in a size, with what it takes from its parents.

    As in recipes, a size is applied to the whole system, from the first parent on.
    """
    table, lineage = PublishedTable(), [system]
    while "as" in read_table(lineage[0]):
        lineage.insert(0, read_table(lineage[0])["as"])
    for name in lineage:
        table.remove(read_table(name).get("without", ()))
        table.add(read_table(name).get("constants", ()))
        table.choices |= read_table(name).get("choices", {}).keys()
    for name in lineage:
        sized = read_table(name).get("sizes", {}).get(size, {})
        table.remove(sized.get("without", ()))
        table.add(sized.get("constants", ()))
    return table


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the values in a resolved recipe by path; a constant schedule is its number."""
    if isinstance(value, dict) and value.keys() == {"kind", "value"} | value.keys() & {"value"}:
        value = value["value"] if value["kind"] == "constant" else value
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from leaves(child, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(child, dict) for child in value):
        for index, child in enumerate(value):
            yield from leaves(child, (*path, str(index)))
    else:
        yield ".".join(path), value


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """Return the constants of a recipe; heads and inner widths are resolved."""
    values = dict(leaves(recipe.as_dict()))
    encoder = recipe.encoder
    if isinstance(encoder.mixer, MultiHeadConfig):
        shape = encoder.mixer.head_shape(encoder.block_widths[0][1])
        values["encoder.mixer.heads"] = shape.num_heads
        values["encoder.mixer.head_width"] = shape.head_width
        values.pop("encoder.mixer.width", None)
    if any("f" in order for order in encoder.depth.sublayer_orders()):
        width = encoder.feed_forward.inner_width(encoder.block_widths[0][1])
        values["encoder.feed_forward.width"] = width
        del values["encoder.feed_forward.expansion"]
    else:
        values = {p: v for p, v in values.items() if not p.startswith("encoder.feed_forward.")}
    for number, phase in enumerate(recipe.phases):
        values[f"phases.{number}.length"] = phase.length or recipe.assembly.length
    return {
        path: value
        for path, value in values.items()
        if not SETTINGS_OF_A_RUN.fullmatch(path) and is_used(path, values)
    }


def is_used(path: str, values: Mapping[str, Any]) -> bool:
    """Return whether a setting has an effect, given the others."""
    for pattern, (other, value) in USED_IF.items():
        if match := re.fullmatch(pattern, path):
            return values.get(match.expand(other)) == value
    return True


def is_neutral(path: str, value: Any) -> bool:
    pattern = re.sub(r"^(objectives|phases)\.[^.]+\.", r"\1.*.", path)
    return pattern in NEUTRAL and NEUTRAL[pattern] == value


def differences(recipe: Recipe, table: PublishedTable) -> list[str]:
    """Return what differs between a recipe and the published values."""
    actual = recipe_values(recipe)
    published = {p: v for p, v in table.values.items() if is_used(p, table.values)}
    differing = [
        f"{path}: {actual.get(path, 'absent')!r} in the recipe, published is {value!r}"
        for path, value in published.items()
        if path not in actual or not is_equal(actual[path], value)
    ]
    unexplained = [
        f"{path}: {value!r} in the recipe has no entry in the table"
        for path, value in actual.items()
        if path not in published
        and not is_neutral(path, value)
        and not table.is_choice(path)
        and not (LENGTH_OF_A_PHASE.fullmatch(path) and value == recipe.assembly.length)
    ]
    return differing + unexplained


def sizes_of(system: str) -> list[str]:
    """Return the published sizes of a system.

    These are the sizes in its table and those with a published number of parameters. A size of the
    recipe must be one of them, or one of ``our_sizes``.
    """
    file, table = read_system_file(system), read_table(system)
    published = {*file.get("about", {}).get("parameters", {}), *table.get("sizes", {})}
    ours = set(table.get("our_sizes", ()))
    assert set(file.get("sizes", {})) <= published | ours, f"{system} has a size without a source"
    return [size for size in size_names(system) if size in published - ours]


PUBLISHED = [system for system in system_names() if system not in UNPUBLISHED]


def test_every_system_has_a_table() -> None:
    assert {file.stem for file in TABLES.glob("*.yaml")} == set(PUBLISHED)


@pytest.mark.parametrize("system", PUBLISHED)
def test_constants_are_the_published_ones(system: str) -> None:
    table = published_table(system)
    assert not differences(Recipe.load(system), table)
    about = read_system_file(system)["about"]
    if table.deviating:
        assert about.get("deviations"), "what is done instead of the published is not named"
    for size in sizes_of(system):
        assert not differences(Recipe.load(f"{system}-{size}"), published_table(system, size)), size
