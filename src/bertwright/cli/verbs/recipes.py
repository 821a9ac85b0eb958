"""``bertwright recipes``: list, show and compare recipes."""

from typing import Annotated

import typer

from bertwright.cli.options import PluginOption
from bertwright.cli.output import JsonOption, print_result
from bertwright.core.errors import UserError

app = typer.Typer(invoke_without_command=True)

OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Overrides of the recipe."),
]


def split_recipe_and_overrides(arguments: list[str] | None) -> tuple[str | None, list[str]]:
    """Return the recipe among the arguments, if any, and the overrides."""
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

    if as_json:
        print_result({"recipes": recipe_names()}, as_json)
        return
    shared = set.intersection(*(set(size_names(system)) for system in system_names()))
    for system in system_names():
        sizes = [size for size in size_names(system) if size not in shared]
        more = f" (also -{', -'.join(sizes)})" if sizes else ""
        typer.echo(f"{system:<22} {read_system_file(system).get('source', '')}{more}")
    common = ", ".join(f"-{size}" for size in size_names(system_names()[0]) if size in shared)
    typer.echo(f"Add a size to a name: {common}.")


@app.command()
def show(name: str, overrides: OverridesArgument = None, plugin: PluginOption = None) -> None:
    """Print the fully resolved recipe."""
    from bertwright.recipes import Recipe

    typer.echo(Recipe.load(name, *(overrides or [])).as_yaml(), nl=False)


@app.command()
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
    if as_json:
        print_result({d.axis: [d.first, d.second] for d in axes}, as_json=True)
        return
    for difference in axes:
        typer.echo(f"{difference.axis}: {difference.first} -> {difference.second}")
