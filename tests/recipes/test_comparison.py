"""Two recipes side by side, in words."""

from bertwright.recipes import Recipe
from bertwright.recipes.comparison import differences, in_words


def test_a_recipe_does_not_differ_from_itself():
    assert differences(Recipe.load("bert-mini"), Recipe.load("bert-mini")) == []


def test_only_the_axes_that_differ_are_named():
    found = differences(
        Recipe.load("bert-mini"), Recipe.load("bert-mini", "encoder.positions.kind=rotary")
    )
    assert [(d.axis, d.first, d.second) for d in found] == [
        ("encoder.positions", "learned (size 512, offset 0)", "rotary (base 10000)")
    ]


def test_choices_read_as_a_person_would_say_them():
    assert in_words({"kind": "constant", "value": 0.5}) == "0.5"
    assert in_words({"kind": "none"}) == "none"
    assert in_words(None) == "none"
    assert in_words(True) == "yes"
