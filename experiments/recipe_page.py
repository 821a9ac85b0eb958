"""The page of recipes: a line for every system, with the outcome of its check."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.markdown_sections import write_section
from bertwright.models.costs import num_parameters_by_part
from bertwright.recipes import Recipe
from bertwright.recipes.loading import read_system_file
from bertwright.runtime.markdown_report import markdown_table
from experiments.recipe_checks import RecipeCheck
from experiments.system_info import read_system_info

COLUMNS = {
    "system": "system",
    "recipe": "recipe",
    "source": "source",
    "parent": "parent",
    "deviations": "deviations",
    "parameters": "parameters",
    "counts": "known counts",
    "loss": "loss, first and last step",
    "export": "stock class",
}


def write_recipe_table(checks: Sequence[RecipeCheck], document: Path) -> None:
    """Write the table of checked systems."""
    rows = [_recipe_row(check) for check in sorted(checks, key=_sort_key)]
    write_section(document, "recipes", markdown_table(COLUMNS, rows))


def _sort_key(check: RecipeCheck) -> tuple[bool, int, str]:
    number = check.system.removeprefix("A")
    return not number.isdigit(), int(number) if number.isdigit() else 0, check.name


def _recipe_row(check: RecipeCheck) -> dict[str, object]:
    system = check.name.removesuffix("-tiny")
    recipe = Recipe.load(f"{system}-base")
    parent = read_system_file(system).get("extends")
    return {
        "system": check.system,
        "recipe": f"`{system}`",
        "source": recipe.source,
        "parent": f"`{parent}`" if parent else "",
        "deviations": read_system_info(system).deviations,
        "parameters": f"{sum(num_parameters_by_part(recipe).values()):,}",
        "counts": f"{check.num_known_counts} exact" if check.num_known_counts else "",
        "loss": f"{check.first_loss:.3f}, {check.last_loss:.3f}" if check.ok else check.problem,
        "export": "none" if check.stock_class.startswith("no ") else check.stock_class,
    }
