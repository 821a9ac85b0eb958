"""Long strings are found in source without parsing it whole."""

import ast
from pathlib import Path

import pytest

from bertwright.text.literals import SHORTEST, long_strings

SENTENCE = "The quick brown fox jumps over the lazy dog."


def parsed(code: str) -> list[str]:
    """The same by parsing: slower, and the definition."""
    nodes = list(ast.walk(ast.parse(code)))
    formatted = {id(part) for n in nodes if isinstance(n, ast.JoinedStr) for part in ast.walk(n)}
    values = [
        (node.lineno, node.col_offset, node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and id(node) not in formatted
        if isinstance(node.value, str) and len(node.value) >= SHORTEST and " " in node.value
    ]
    return [value for _, _, value in sorted(values)]


@pytest.mark.parametrize(
    "code",
    [
        f'"""{SENTENCE}"""',
        f"'''{SENTENCE} It says \"stop\" and ''two''.'''",
        f'x = r"{SENTENCE} \\d"',
        f'x = ("{SENTENCE}"  # with a "comment" between\n     \' {SENTENCE}\')',
        f'x = "{SENTENCE}" \\\n    "{SENTENCE}"',
        f'# a comment that "opens a string\nx = "{SENTENCE}"',
        f'x = "a \\" b {SENTENCE}"; y = "" ; z = \'\'; """{SENTENCE}"""',
        f'x = b"{SENTENCE}" if"{SENTENCE}"else "short"',
        f'def f():\n    """{SENTENCE}\n\n    {SENTENCE}\n    """\n    return "{SENTENCE}"',
        f'x = "two\\\nlines {SENTENCE}"',
    ],
)
def test_the_strings_are_those_that_parsing_finds(code: str) -> None:
    assert long_strings(code) == parsed(code)
    assert parsed(code)


def test_formatted_strings_are_left_out() -> None:
    assert long_strings(f'x = f"{SENTENCE} {{x}} {SENTENCE}"') == []


@pytest.mark.parametrize("module", ["argparse", "typing", "json.decoder", "turtle", "subprocess"])
def test_real_modules(module: str) -> None:
    path = Path(ast.__file__).parent / f"{module.replace('.', '/')}.py"
    code = path.read_text(encoding="utf-8")
    assert long_strings(code) == parsed(code)


def test_code_that_is_none_gives_what_it_holds() -> None:
    assert long_strings(f'this is no code at all "{SENTENCE}" \'') == [SENTENCE]
