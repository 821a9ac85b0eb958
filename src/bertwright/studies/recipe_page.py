"""The page of recipes: a line for every system, with what has become of its check."""

from collections.abc import Sequence
from pathlib import Path

from bertwright.document import table, write_section
from bertwright.model.counting import parameters_by_part
from bertwright.recipes import Recipe
from bertwright.recipes.about import about
from bertwright.recipes.loading import parent_of
from bertwright.studies.recipe_checks import Check

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


def write_recipes(checks: Sequence[Check], document: Path) -> None:
    """Write the table of the systems that were checked."""
    rows = [_row(check) for check in sorted(checks, key=_order)]
    write_section(document, "recipes", table(COLUMNS, rows))


def _order(check: Check) -> tuple[bool, int, str]:
    number = check.system.removeprefix("A")
    return not number.isdigit(), int(number) if number.isdigit() else 0, check.name


def _row(check: Check) -> dict[str, object]:
    system = check.name.removesuffix("-tiny")
    recipe = Recipe.load(f"{system}-base")
    parent = parent_of(system)
    return {
        "system": check.system,
        "recipe": f"`{system}`",
        "source": recipe.source,
        "parent": f"`{parent}`" if parent else "",
        "deviations": about(system).deviations,
        "parameters": f"{sum(parameters_by_part(recipe).values()):,}",
        "counts": f"{check.counts} exact" if check.counts else "",
        "loss": f"{check.first_loss:.3f}, {check.last_loss:.3f}" if check.ok else check.wrong,
        "export": "none" if check.export.startswith("no ") else check.export,
    }
