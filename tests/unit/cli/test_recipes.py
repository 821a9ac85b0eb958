"""``recipes`` lists systems for people and every name in JSON."""

from bertwright.recipes.loading import recipe_names, system_names
from commands import invoke, invoke_json


def test_every_system_is_a_line_with_its_further_sizes() -> None:
    *lines, last = invoke("recipes").stdout.splitlines()
    assert [line.split()[0] for line in lines] == system_names()
    assert next(line for line in lines if line.startswith("gpt-2 ")).endswith("(also -xl)")
    assert "-tiny" in last
    assert "-base" in last


def test_json_lists_every_recipe() -> None:
    assert invoke_json("recipes")["recipes"] == recipe_names()
