"""Mutation operators for numerical code, in addition to those of Cosmic Ray."""

from typing import Any

import parso
from cosmic_ray.operators.operator import Example, Operator

TRANSFORMATIONS = frozenset(
    {"abs", "clamp", "clip", "cumsum", "exp", "layer_norm", "log", "log_softmax", "normalize"}
    | {"round", "sigmoid", "softmax", "sqrt", "square", "tanh", "unit_vectors"}
)
"""Functions and methods that return values like their input, so that code runs without them."""

SYMMETRIC = frozenset(
    {"max", "maximum", "min", "minimum", "isinstance", "allclose", "array_equal"}
    | {"transpose", "swapaxes"}
)
"""Functions whose last two arguments may be exchanged, or which cannot run if they are."""


class RemoveTransformation(Operator):
    """Replace ``softmax(x)`` or ``x.softmax(-1)`` by ``x``."""

    def mutation_positions(self, node: Any) -> Any:
        if transformed_value(node) is not None:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return parso.parse(f"{node.get_first_leaf().prefix}({transformed_value(node)})")

    @classmethod
    def examples(cls) -> Any:
        return (
            Example("y = F.softmax(x, -1) + z", "y = (x) + z"),
            Example("y = a.b(c).softmax(-1)", "y = (a.b(c))"),
        )


def transformed_value(node: Any) -> str | None:
    """Return the code of the value that a call transforms; None for other nodes."""
    if node.type not in ("atom_expr", "power") or len(node.children) < 2:
        return None
    *start, function, call = node.children
    if not is_call(call):
        return None
    if function.type == "name":  # softmax(x)
        return first_argument(call) if function.value in TRANSFORMATIONS else None
    if function.type != "trailer" or function.children[0].value != ".":
        return None
    if function.children[1].value not in TRANSFORMATIONS:
        return None
    # F.softmax(x) has a module in front of the dot, and x.softmax() a value.
    is_module = len(start) == 1 and start[0].type == "name" and start[0].value in MODULES
    if is_module:
        return first_argument(call)
    return "".join(part.get_code(include_prefix=part is not start[0]) for part in start)


MODULES = frozenset({"F", "np", "torch", "math"})


def is_call(node: Any) -> bool:
    return bool(node.type == "trailer" and node.children[0].value == "(")


def first_argument(call: Any) -> str | None:
    """Return the code of the first positional argument."""
    inside = call.children[1:-1]
    if not inside:
        return None
    first = inside[0].children[0] if inside[0].type == "arglist" else inside[0]
    return None if first.type == "argument" else first.get_code(include_prefix=False)


class SwapArguments(Operator):
    """Exchange the last two positional arguments of a call."""

    def mutation_positions(self, node: Any) -> Any:
        if swapped_arguments(node) is not None:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        indices = swapped_arguments(node)
        assert indices is not None
        first, second = indices
        parts = [child.get_code() for child in node.children]
        codes = [node.children[i].get_code(include_prefix=False) for i in indices]
        prefixes = [node.children[i].get_first_leaf().prefix for i in indices]
        parts[first], parts[second] = prefixes[0] + codes[1], prefixes[1] + codes[0]
        return parso.parse("".join(parts))

    @classmethod
    def examples(cls) -> Any:
        return (
            Example("np.where(c, a, b)", "np.where(c, b, a)"),
            Example("f(a, b + 1, key=c)", "f(b + 1, a, key=c)"),
        )


def swapped_arguments(node: Any) -> tuple[int, int] | None:
    """Return the indices of the last two positional arguments that differ; None if there are none.

    The node is the list of arguments of a call.
    """
    if node.type != "arglist" or not is_call(node.parent):
        return None
    siblings = node.parent.parent.children
    called = siblings[siblings.index(node.parent) - 1].get_last_leaf()
    if called.value in SYMMETRIC:
        return None
    children = [(i, c) for i, c in enumerate(node.children) if c.type != "operator"]
    positional = [(i, c) for i, c in children if c.type != "argument"]
    if len(positional) < 2:
        return None
    (first, a), (second, b) = positional[-2:]
    if a.get_code(include_prefix=False) == b.get_code(include_prefix=False):
        return None
    return first, second
