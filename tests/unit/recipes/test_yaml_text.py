"""Plain YAML values are read; all else is refused quickly, in one sentence."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertwright.core.errors import UserError
from bertwright.recipes import Recipe
from bertwright.recipes.loading import recipe_names
from bertwright.recipes.yaml_values import parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("1e-3", 0.001),
        ("1.5e3", 1500.0),
        ("-1E+2", -100.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1_000", 1000),
        ("-7", -7),
        ("0x10", 16),
        (".inf", float("inf")),
        ("true", True),
        ("2024-01-02", "2024-01-02"),
        ("2024-99-99", "2024-99-99"),
        ("12:30:45", 45045),
        ("=", "="),
        ("e5", "e5"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
        ("{a: &x [1], b: *x}", {"a": [1], "b": [1]}),
        ("{a: &x {k: 1, l: 2}, b: {<<: *x, l: 3}}", {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}}),
    ],
)
def test_plain_values_are_read(text: str, value: Any) -> None:
    assert parse_yaml(text) == value
    assert type(parse_yaml(text)) is type(value)


def bomb(alias: str) -> str:
    """Return nine levels of aliases, each repeating the one before it nine times."""
    levels = ["a0: &a0 {k: 1}"]
    for level in range(1, 10):
        before = ", ".join([f"*a{level - 1}"] * 9)
        levels.append(f"a{level}: &a{level} " + alias.format(before))
    return "\n".join(levels)


WRONG = {
    "aliases": (bomb("[{}]"), "values, aliases expanded"),
    "merge keys": (bomb("{{<<: [{}]}}"), "values, aliases expanded"),
    "cycle": ("&a [*a]", "nested lists and mappings"),
    "deep list": ("[" * 100_000, "nests more than|nested lists"),
    "deep mapping": ("{a: " * 50_000, "nests more than|nested lists"),
    "deep block": ("- " * 50_000 + "a", "nests more than|nested lists"),
    "100 deep": ("[" * 100 + "]" * 100, "more than 64 nested lists and mappings"),
    "large": ("a" * (2 << 20), "characters"),
    "digits": ("9" * 5_000, "more than 64 digits"),
    "digits in hexadecimal": ("0x" + "f" * 5_000, "more than 64 digits"),
    "decimals": ("1" * 1_000_000 + ".", "more than 64 digits"),
    "underscores": ("1" + "_1" * 400_000 + "e", "steps: must be a whole number, not '1_1|mapping"),
    "timestamp": ("!!timestamp x", "the tag timestamp is not supported"),
    "binary": ("!!binary x", "the tag binary is not supported"),
    "set": ("!!set {a}", "the tag set is not supported"),
    "python": ("!!python/object/apply:os.system [ls]", "is not supported"),
    "own tag": ("!mine x", "the tag !mine is not supported"),
    "no int": ("!!int x", "the value is not a int"),
    "no bool": ("!!bool x", "the value is not a bool"),
    "no float": ("!!float x", "the value is not a float"),
    "twice": ("a: 1\na: 2", "line 2, the key a occurs twice"),
    "list as key": ("? [a]\n: b", "a key is not text"),
    "two documents": ("a\n---\nb", "line"),
    "no alias": ("*x", "undefined alias"),
    "merged text": ("{<<: a}", "mapping"),
    "control character": ("a\x07", "special characters are not allowed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_values_are_refused_quickly(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    start = time.process_time()
    with pytest.raises(UserError, match=message) as refused:
        Recipe.load("bert-tiny", f"steps={text}")
    assert time.process_time() - start < 2
    assert len(str(refused.value)) < 600
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=r"mine\.yaml"):
        Recipe.load(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: 3", "extends must name a recipe or a file, not 3"),
        ("extends: [bert]", "extends must name a recipe or a file"),
        ('extends: "a\\0.yaml"', "there is no"),
        ("extends: nowhere", "there is no recipe 'nowhere'"),
        ("extends: other.yaml", "mine.yaml: extends other.yaml, which extends it in turn"),
        ("extends: bert-tiny\nencoder: {mixer: {kind: []}}", r"has no kind \[\]"),
        ("extends: bert-tiny\nencoder: {mixer: {kind: {a: 1}}}", "has no kind"),
        ("extends: bert-tiny\nencoder: {mixer: {kind: 2024-99-99}}", "has no kind '2024-99-99'"),
        ("extends: bert-tiny\nencoder: {mixer: {kind: null}}", "kind"),
        ("extends: bert-tiny\nencoder: []", "encoder"),
        ("extends: bert-tiny\n3: 4", "has no key '3'"),
        ("extends: bert-tiny\nsteps: 2024-99-99", "steps: must be a whole number"),
    ],
)
def test_wrong_values_are_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text("extends: mine.yaml")
    with pytest.raises(UserError, match=message):
        Recipe.load(tmp_path / "mine.yaml")


@pytest.mark.parametrize("change", ["=1", "a..b=1", ".=1", "steps", ".".join("a" * 5_000) + "=1"])
def test_override_without_path_is_an_error(change: str) -> None:
    with pytest.raises(UserError, match=r"is not of the form key\.path=value"):
        Recipe.load("bert-tiny", change)


def test_written_recipes_read_back() -> None:
    for name in recipe_names()[:20]:
        text = Recipe.load(name).as_yaml()
        assert parse_yaml(text) == yaml.safe_load(text)
