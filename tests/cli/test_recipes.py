"""The list of recipes: short for a person, whole for a program."""

import json

from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.recipes.loading import recipe_names, systems


def printed(*words: str) -> str:
    result = CliRunner().invoke(app, ["recipes", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_system_has_a_line_with_its_own_sizes() -> None:
    *lines, last = printed().splitlines()
    assert [line.split()[0] for line in lines] == systems()
    assert next(line for line in lines if line.startswith("gpt-2 ")).endswith("(also -xl)")
    assert "-tiny" in last
    assert "-base" in last


def test_a_program_is_told_every_name() -> None:
    assert json.loads(printed("--json"))["recipes"] == recipe_names()
