"""``recipes`` lists systems, and ``count`` their costs, for people and in JSON."""

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


def test_costs_have_units_for_people_and_are_numbers_in_json() -> None:
    costs = invoke_json("count", "bert-base")
    assert costs["parameters"] == sum(costs["parameters_by_part"].values()) == 110_106_428
    assert costs["published_training"]["flops"] > 1e19
    lines = dict(
        line.split("  ", 1)
        for line in invoke("count", "bert-base").stdout.splitlines()
        if line[0] != " "
    )
    shown = {name: text.strip() for name, text in lines.items()}
    assert shown["size"].startswith("110 M parameters")
    assert shown["training memory"] == "12.0 GB"
    assert shown["published training.computation"] == "2.3e19 FLOPs"
