"""Code that is not mutated, because no test should notice.

Annotations, messages of errors, assertions for the type checker, limits that only keep values from
being absurd, arguments of decorators, names of random numbers, lengths of digests, and drawing. In
some packages also the numbers that settings have by default, such as of epochs: they are choices of
effort. (Those of recipes are mutated.)
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

Position = tuple[int, int]

RANDOM_KEYS = {
    *("fold_in", "stream_key", "default_rng", "manual_seed", "CounterRng"),
    *("random_bits", "uniform", "uniform_for_step"),
}
"""Functions whose arguments name a random number: any other one is as good."""

FIELD_LIMITS = {"ge", "gt", "le", "lt", "min_length", "max_length"}


@dataclass(frozen=True)
class Span:
    """A range of the source, from a line and column to another."""

    start: Position
    stop: Position

    def contains(self, position: Position) -> bool:
        return self.start <= position < self.stop


def excluded_spans(source: str, excludes_defaults: bool = False) -> list[Span]:
    """Return the ranges of a module that are not mutated."""
    tree = ast.parse(source)
    nodes = [*_excluded_nodes(tree), *(_default_numbers(tree) if excludes_defaults else ())]
    return [span_of(node) for node in nodes]


def _default_numbers(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the numbers that fields of settings have by default."""
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in owner.body:
            match node:
                case ast.AnnAssign(value=ast.Constant(value=int() | float()) as number):
                    yield number
                case ast.AnnAssign(value=ast.Call(keywords=keywords)):
                    # Field(default=0.1), ConstantSchedule(value=0.1)
                    yield from (k.value for k in keywords if k.arg in ("default", "value"))
                case _:
                    pass


def span_of(node: ast.AST) -> Span:
    return Span((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]


def _excluded_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_type_alias(node):
            yield node
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign():
                yield node.annotation
            case ast.FunctionDef() if any(a.arg == "axes" for a in node.args.args):
                yield node
            case ast.FunctionDef():
                yield from node.decorator_list
                yield from filter(None, [node.returns])
                arguments = node.args
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                every += [a for a in (arguments.vararg, arguments.kwarg) if a]
                yield from (a.annotation for a in every if a.annotation)
            case ast.ClassDef():
                yield from node.decorator_list
                yield from node.bases
                yield from (n for n in node.body if _is_drawing(n))
            case ast.Raise() | ast.Assert():
                yield node
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield node
            case ast.Call(func=ast.Name(id="zip")):
                yield from (k.value for k in node.keywords if k.arg == "strict")
            case ast.Call(func=ast.Name(id="Field")):
                yield from (k.value for k in node.keywords if k.arg in FIELD_LIMITS)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in RANDOM_KEYS:
                yield from node.args
            case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="hexdigest"))):
                yield node.slice
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "did_you_mean" | "count_noun")):
                yield node
            case _:
                pass


def _is_drawing(node: ast.stmt) -> bool:
    """Return whether a statement of a class lists the panels of its plot."""
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "plots"


def _is_type_alias(node: ast.Assign) -> bool:
    """Return whether a module gives a type a name, such as ``Sums = tuple[A, B] | None``."""
    name = node.targets[0]
    return (
        isinstance(name, ast.Name)
        and not name.id.isupper()
        and name.id.lstrip("_")[:1].isupper()
        and isinstance(node.value, ast.BinOp | ast.Subscript | ast.Name | ast.Attribute)
    )
