"""``bertwright recipes``: list, show and compare recipes."""

from typing import Annotated

import typer

from bertwright.cli.options import DocumentedCommand, PluginOption
from bertwright.cli.output import JsonOption, print_result
from bertwright.core.errors import UserError

app = typer.Typer(invoke_without_command=True)

RecipeArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [KEY.PATH=VALUE ...]",
        help="Recipe (modern-mini by default) and overrides.",
    ),
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Overrides of the recipe."),
]


def split_recipe_and_overrides(arguments: list[str] | None) -> tuple[str | None, list[str]]:
    """Return the recipe in the arguments, if there is one, and the overrides."""
    names = [argument for argument in arguments or [] if "=" not in argument]
    if len(names) > 1:
        raise UserError(f"{names[1]!r} is neither a recipe nor an override (key.path=value)")
    return names[0] if names else None, [
        argument for argument in arguments or [] if "=" in argument
    ]


@app.callback()
def recipes(context: typer.Context, as_json: JsonOption = False) -> None:
    """List all recipes; show one, or the differences of two."""
    if context.invoked_subcommand is not None:
        return
    from bertwright.recipes.loading import read_system_file, recipe_names, size_names, system_names

    systems = {system: size_names(system) for system in system_names()}
    shared = set.intersection(*map(set, systems.values()))
    lines: list[str] = []
    for system, sizes in systems.items():
        extra = [size for size in sizes if size not in shared]
        more = f" (also -{', -'.join(extra)})" if extra else ""
        lines.append(f"{system:<22} {read_system_file(system).get('source', '')}{more}")
    common = ", ".join(f"-{size}" for size in next(iter(systems.values())) if size in shared)
    lines.append(f"Add a size to a name: {common}.")
    print_result({"recipes": recipe_names()}, as_json, lines)


@app.command(cls=DocumentedCommand)
def show(name: str, overrides: OverridesArgument = None, plugin: PluginOption = None) -> None:
    """Print the fully resolved recipe."""
    from bertwright.recipes import Recipe

    typer.echo(Recipe.load(name, *(overrides or [])).as_yaml(), nl=False)


@app.command(cls=DocumentedCommand)
def diff(
    first: str,
    second: str,
    overrides: OverridesArgument = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the axes in which two recipes differ."""
    from bertwright.recipes import Recipe
    from bertwright.recipes.comparison import differences

    axes = differences(Recipe.load(first), Recipe.load(second, *(overrides or [])))
    lines = (f"{d.axis}: {d.first} -> {d.second}" for d in axes)
    print_result({d.axis: [d.first, d.second] for d in axes}, as_json, lines)
