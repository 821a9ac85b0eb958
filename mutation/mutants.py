"""All mutants of a package: positions in the code, and their changes."""

import ast
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import yaml
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

from mutation.exclusions import Position, Span, excluded_spans
from mutation.operators import RemoveTransformation, SwapArguments

OUR_OPERATORS: Mapping[str, type[Operator]] = {
    "RemoveTransformation": RemoveTransformation,
    "SwapArguments": SwapArguments,
}

EQUIVALENT = Path(__file__).parent / "equivalent.yaml"
"""Mutants that behave like the original code, each with the reason."""


@dataclass(frozen=True)
class Mutant:
    """A change at one position of one file.

    Attributes:
        path: the file, relative to the checkout.
        start, stop: the first and the last position that change, lines from 1.
        function_lines: first and last line of the function around it; None outside of functions.
    """

    package: str
    path: str
    operator: str
    occurrence: int
    start: Position
    stop: Position
    function_lines: tuple[int, int] | None

    def mutated_source(self, source: str) -> str:
        """Return the source of the file with the change."""
        mutated = mutate_code(source, build_operator(self.operator), self.occurrence)
        assert mutated is not None, self
        return mutated


def build_operator(name: str) -> Operator:
    operator = OUR_OPERATORS.get(name)
    return operator() if operator else get_operator(f"core/{name}")()


def find_mutants(
    checkout: Path,
    package: str,
    operators: Iterable[str],
    equivalent: Iterable[Mapping[str, Any]],
    excludes_defaults: bool = False,
) -> list[Mutant]:
    """Return the mutants of the modules in ``src/bertwright/PACKAGE``."""
    named = [(name, build_operator(name)) for name in operators]
    known = {(e["file"], e["from"], e["to"]) for e in equivalent}
    changed_lines = {(file, before) for file, before, _ in known}
    mutants: list[Mutant] = []
    for file in sorted((checkout / "src/bertwright" / package).rglob("*.py")):
        path = str(file.relative_to(checkout))
        source = file.read_text(encoding="utf-8")
        excluded = excluded_spans(source, excludes_defaults)
        lines = [line.strip() for line in source.splitlines()]
        for mutant in _mutants_of_file(package, path, source, named, excluded):
            around = lines[mutant.start[0] - 1 : mutant.stop[0]]
            if not any((path, line) in changed_lines for line in around) or (
                (path, *changed_line(mutant, source)) not in known
            ):
                mutants.append(mutant)
    return mutants


def _mutants_of_file(
    package: str,
    path: str,
    source: str,
    operators: list[tuple[str, Operator]],
    excluded: list[Span],
) -> Iterator[Mutant]:
    functions = _functions(source)
    counts = dict.fromkeys((name for name, _ in operators), -1)
    for node in ast_nodes(get_ast(source)):
        for name, operator in operators:
            positions = cast(
                "Iterable[tuple[Position, Position]]", operator.mutation_positions(node)
            )
            for start, stop in positions:
                counts[name] += 1
                if any(span.contains(start) for span in excluded):
                    continue
                around = [f for f in functions if f[0] <= start[0] <= f[1]]
                smallest = min(around, key=lambda f: f[1] - f[0], default=None)
                yield Mutant(package, path, name, counts[name], start, stop, smallest)


def _functions(source: str) -> list[tuple[int, int]]:
    """Return the first and last line of the body of every function."""
    return [
        (node.body[0].lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
    ]


def changed_line(mutant: Mutant, source: str) -> tuple[str, str]:
    """Return the first line that a mutant changes, before and after, without indentation."""
    before, after = source.splitlines(), mutant.mutated_source(source).splitlines()
    changed = [(a, b) for a, b in zip(before, after, strict=False) if a != b]
    first = changed[0] if changed else ("", "")
    return first[0].strip(), first[1].strip()


def read_equivalent() -> list[Mapping[str, Any]]:
    """Return the mutants that are known to be equivalent, each with its reason."""
    entries = yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or []
    assert all(entry.keys() == {"file", "from", "to", "reason"} for entry in entries)
    return entries


def in_random_order(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    """Return mutants so that the first N are a random sample of each package, for every N.

    The packages take turns, so that a small one is sampled as often as a large one.
    """
    by_package: dict[str, list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda m: (m.path, m.operator, m.occurrence)):
        by_package.setdefault(mutant.package, []).append(mutant)
    for of_package in by_package.values():
        random.Random(seed).shuffle(of_package)
    turns = zip_longest(*by_package.values())
    return [mutant for turn in turns for mutant in turn if mutant is not None]
