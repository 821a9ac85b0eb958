"""Comparison of two recipes."""

from bertwright.recipes import Recipe
from bertwright.recipes.comparison import describe_value, differences


def test_recipe_equals_itself():
    assert differences(Recipe.load("bert-mini"), Recipe.load("bert-mini")) == []


def test_only_different_axes_are_listed():
    result = differences(
        Recipe.load("bert-mini"), Recipe.load("bert-mini", "encoder.positions.kind=rotary")
    )
    assert [(d.axis, d.first, d.second) for d in result] == [
        ("encoder.positions", "learned (size 512, offset 0)", "rotary (base 10000)")
    ]


def test_described_values():
    assert describe_value({"kind": "constant", "value": 0.5}) == "0.5"
    assert describe_value({"kind": "none"}) == "none"
    assert describe_value(None) == "none"
    assert describe_value(True) == "yes"
