"""YAML parsing for recipes, overrides and plans: plain values, in bounded time and memory."""

import re
from typing import Any

import yaml

MAX_CHARACTERS = 1 << 20
"""Maximum characters of one YAML text; a recipe has a few thousand."""

MAX_VALUES = 100_000
"""Maximum values of one YAML text, with aliases expanded."""

MAX_DEPTH = 64
"""Maximum nesting depth of lists and mappings."""

MAX_DIGITS = 64
"""Maximum digits of one number."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = {f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
_MERGE, _TEXT = f"{_TAG}merge", f"{_TAG}str"


def parse_yaml(text: str, as_text: bool = False) -> Any:
    """Return the value of a YAML text: mappings, lists, text, numbers, booleans and null.

    1e-3 is a number; dates and keys are text. With ``as_text`` every scalar except null is text.

    Errors: ValueError, one sentence that names the line, for any other value and for text that is
    expensive to parse.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"it has {len(text):,} characters, more than the maximum of {MAX_CHARACTERS:,}"
        )
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_nodes(node, as_text)
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError(f"it nests more than {MAX_DEPTH} lists and mappings") from None
    except yaml.MarkedYAMLError as error:
        raise ValueError(_error_message(error)) from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error


class _Loader(yaml.SafeLoader):
    """A loader that reports a value that does not match its tag in one sentence."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, TypeError, OverflowError):
            kind = node.tag.removeprefix(_TAG)
            raise _yaml_error(node, f"the value is not a {kind}: leave the tag out") from None


def _check_nodes(root: yaml.Node, as_text: bool) -> None:
    """Reject unusual tags, duplicate keys, keys that are not text, and deep or large values."""
    sizes: dict[int, int] = {}

    def size_of(node: yaml.Node, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise _yaml_error(node, f"more than {MAX_DEPTH} nested lists and mappings")
        if node.tag not in _PLAIN:
            raise _yaml_error(
                node, f"the tag {node.tag.removeprefix(_TAG)} is not supported: leave it out"
            )
        if isinstance(node, yaml.ScalarNode):
            if as_text and node.tag != f"{_TAG}null":
                node.tag = _TEXT
            if node.tag in (f"{_TAG}int", f"{_TAG}float") and len(node.value) > MAX_DIGITS:
                raise _yaml_error(node, f"a number has more than {MAX_DIGITS} digits")
            return 1
        if id(node) not in sizes:
            children = node.value
            if isinstance(node, yaml.MappingNode):
                _check_keys([key for key, _ in node.value])
                children = [value for _, value in node.value]
            size = 1 + sum(size_of(child, depth + 1) for child in children)
            if size > MAX_VALUES:
                raise _yaml_error(node, f"it has more than {MAX_VALUES:,} values, aliases expanded")
            sizes[id(node)] = size
        return sizes[id(node)]

    size_of(root, 1)


def _check_keys(keys: list[yaml.Node]) -> None:
    seen: set[str] = set()
    for key in keys:
        if not isinstance(key, yaml.ScalarNode) or key.tag not in _PLAIN | {_MERGE}:
            raise _yaml_error(key, "a key is not text")
        if key.value in seen:
            raise _yaml_error(key, f"the key {key.value} occurs twice")
        seen.add(key.value)
        if key.tag != _MERGE:
            key.tag = _TEXT


def _yaml_error(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _error_message(error: yaml.MarkedYAMLError) -> str:
    """Return the problem and its line as text."""
    problem = (error.problem or "it cannot be read").replace("\n", " ")
    mark = error.problem_mark
    return problem if mark is None else f"line {mark.line + 1}, {problem}"


def _implicit_resolvers() -> dict[str | None, list[tuple[str, re.Pattern[str]]]]:
    """Return the resolvers of YAML 1.1 without dates, and with numbers such as 1e-3."""
    kept_tags = ("bool", "int", "null", "merge")
    number = re.compile(
        r"[-+]?(?:(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9]+)[eE][-+]?[0-9]+"
        r"|(?:[0-9][0-9_]*)?\.[0-9_]+|[0-9][0-9_]*\.|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
    )
    resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items():
        resolvers[first] = [(tag, e) for tag, e in pairs if tag.removeprefix(_TAG) in kept_tags]
    for first in "-+0123456789.":
        pattern = re.compile(f"(?:{number.pattern})$")
        resolvers.setdefault(first, []).append((f"{_TAG}float", pattern))
    return resolvers


_Loader.yaml_implicit_resolvers = _implicit_resolvers()
