"""YAML of recipes, overrides and plans: plain values, in bounded time and memory."""

import re
from typing import Any

import yaml

MAX_CHARACTERS = 1 << 20
"""Of one text: a recipe has some thousand."""

MAX_VALUES = 100_000
"""Of one text, where aliases stand for all that they repeat."""

MAX_DEPTH = 64
"""Lists and mappings inside one another."""

MAX_DIGITS = 64
"""Of one number."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = {f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
_MERGE, _TEXT = f"{_TAG}merge", f"{_TAG}str"


def parse_yaml(text: str, as_text: bool = False) -> Any:
    """Return the value of a YAML text: mappings, lists, text, numbers, booleans and null.

    1e-3 is a number, as everyone who writes it means; a date is text, and so is every key, which
    names a setting or a label. ``as_text`` reads every scalar as the text that it is.

    Errors: ValueError in one sentence that names the line, for anything else, and for what would
    take long to read.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, and {MAX_CHARACTERS:,} are read")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, as_text)
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError(f"it nests more than {MAX_DEPTH} lists and mappings") from None
    except yaml.MarkedYAMLError as error:
        raise ValueError(_sentence(error)) from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error


class _Loader(yaml.SafeLoader):
    """Values of which a tag says what they are not: one sentence."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, TypeError, OverflowError):
            kind = node.tag.removeprefix(_TAG)
            raise _wrong(node, f"the value is no {kind}: leave the tag out") from None


def _check(root: yaml.Node, as_text: bool) -> None:
    """Refuse values with other tags than plain ones, keys that are no text or stand twice, and what
    is deep or large when aliases are written out."""
    sizes: dict[int, int] = {}

    def size_of(node: yaml.Node, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise _wrong(node, f"more than {MAX_DEPTH} lists and mappings stand inside one another")
        if node.tag not in _PLAIN:
            raise _wrong(node, f"the tag {node.tag.removeprefix(_TAG)} is not read: leave it out")
        if isinstance(node, yaml.ScalarNode):
            if as_text:
                node.tag = _TEXT
            if node.tag in (f"{_TAG}int", f"{_TAG}float") and len(node.value) > MAX_DIGITS:
                raise _wrong(node, f"a number has more than {MAX_DIGITS} digits")
            return 1
        if id(node) not in sizes:
            inside = node.value
            if isinstance(node, yaml.MappingNode):
                _check_keys([key for key, _ in node.value])
                inside = [value for _, value in node.value]
            size = 1 + sum(size_of(part, depth + 1) for part in inside)
            if size > MAX_VALUES:
                raise _wrong(node, f"it has more than {MAX_VALUES:,} values, aliases written out")
            sizes[id(node)] = size
        return sizes[id(node)]

    size_of(root, 1)


def _check_keys(keys: list[yaml.Node]) -> None:
    seen: set[str] = set()
    for key in keys:
        if not isinstance(key, yaml.ScalarNode) or key.tag not in _PLAIN | {_MERGE}:
            raise _wrong(key, "a key is no text")
        if key.value in seen:
            raise _wrong(key, f"the key {key.value} stands there twice")
        seen.add(key.value)
        if key.tag != _MERGE:
            key.tag = _TEXT


def _wrong(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _sentence(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong, and in which line."""
    problem = (error.problem or "it cannot be read").replace("\n", " ")
    mark = error.problem_mark
    return problem if mark is None else f"line {mark.line + 1}, {problem}"


def _resolvers() -> dict[str | None, list[tuple[str, re.Pattern[str]]]]:
    """Return those of YAML 1.1 without dates, and with numbers such as 1e-3."""
    kept = ("bool", "int", "null", "merge")
    number = re.compile(
        r"[-+]?(?:(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9]+)[eE][-+]?[0-9]+"
        r"|(?:[0-9][0-9_]*)?\.[0-9_]+|[0-9][0-9_]*\.|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
    )
    resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items():
        resolvers[first] = [(tag, e) for tag, e in known if tag.removeprefix(_TAG) in kept]
    for first in "-+0123456789.":
        whole = re.compile(f"(?:{number.pattern})$")
        resolvers.setdefault(first, []).append((f"{_TAG}float", whole))
    return resolvers


_Loader.yaml_implicit_resolvers = _resolvers()
