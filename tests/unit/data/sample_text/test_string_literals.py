"""Long string literals of Python source."""

import ast
from pathlib import Path

import pytest

from bertwright.data.sample_text.string_literals import MIN_STRING_LENGTH, long_strings

SENTENCE = "The quick brown fox jumps over the lazy dog."


def strings_by_parsing(code: str) -> list[str]:
    """Return the long strings by parsing the code."""
    nodes = list(ast.walk(ast.parse(code)))
    formatted = {id(part) for n in nodes if isinstance(n, ast.JoinedStr) for part in ast.walk(n)}
    values = [
        (node.lineno, node.col_offset, node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and id(node) not in formatted
        if isinstance(node.value, str)
        and len(node.value) >= MIN_STRING_LENGTH
        and " " in node.value
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
def test_long_strings_match_the_parser(code: str) -> None:
    assert long_strings(code) == strings_by_parsing(code)
    assert strings_by_parsing(code)


def test_formatted_strings_are_ignored() -> None:
    assert long_strings(f'x = f"{SENTENCE} {{x}} {SENTENCE}"') == []


@pytest.mark.parametrize("module", ["argparse", "typing", "json.decoder", "turtle", "subprocess"])
def test_real_modules(module: str) -> None:
    path = Path(ast.__file__).parent / f"{module.replace('.', '/')}.py"
    code = path.read_text(encoding="utf-8")
    assert long_strings(code) == strings_by_parsing(code)


def test_invalid_code() -> None:
    assert long_strings(f'this is no code at all "{SENTENCE}" \'') == [SENTENCE]
