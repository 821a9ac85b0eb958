"""``bertwright recipes``: the list, one of them, two of them compared."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.studies.recipe_checks import Check

app = typer.Typer(invoke_without_command=True)

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to the recipe.")
]


def recipe_and_changes(words: list[str] | None) -> tuple[str | None, list[str]]:
    """The words of a command as at most one recipe and the changes to it."""
    names = [word for word in words or [] if "=" not in word]
    if len(names) > 1:
        raise UserError(f"{names[1]!r} is neither a recipe nor a change (key.path=value)")
    return names[0] if names else None, [word for word in words or [] if "=" in word]


@app.callback()
def recipes(context: typer.Context, as_json: AsJson = False) -> None:
    """Show, compare and check recipes; without a command, list every system with its sizes: bert in
    size base is the recipe bert-base."""
    if context.invoked_subcommand is not None:
        return
    from bertwright.recipes.loading import recipe_names, sizes_of, source_of, systems

    if as_json:
        report({"recipes": recipe_names()}, as_json)
        return
    shared = set.intersection(*(set(sizes_of(system)) for system in systems()))
    for system in systems():
        own = [size for size in sizes_of(system) if size not in shared]
        more = f" (also -{', -'.join(own)})" if own else ""
        typer.echo(f"{system:<22} {source_of(system)}{more}")
    common = ", ".join(f"-{size}" for size in sizes_of(systems()[0]) if size in shared)
    typer.echo(f"Behind a name stands a size: {common}.")


@app.command()
def check(
    systems: Annotated[
        list[str] | None, typer.Argument(metavar="[SYSTEM ...]", help="Only these: bert, gpt-2 ...")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder that prepare wrote; else the sample text, or one made to order."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps in the place of 300.")
    ] = False,
    document: Annotated[
        Path | None,
        typer.Option(
            help="A Markdown file whose table of recipes is written anew.",
            dir_okay=False,
            writable=True,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count, train, resume, export and re-load every system at 2x128; exit code 1 on any miss."""
    from bertwright.cli.output import say
    from bertwright.studies.recipe_checks import QUICK_STEPS, STEPS, check_all

    def tell(check: "Check") -> None:
        if not as_json:
            say(str(check))

    found = check_all(systems or [], data, QUICK_STEPS if quick else STEPS, tell)
    if document is not None:
        from bertwright.studies.recipe_page import write_recipes

        write_recipes(found, document)
    if as_json:
        report({"recipes": [check.as_dict() for check in found]}, as_json)
    if not all(check.ok for check in found):
        raise typer.Exit(1)


@app.command()
def show(name: str, changes: Overrides = None, plugin: Plugin = None) -> None:
    """Print the fully resolved recipe."""
    from bertwright.recipes import Recipe

    typer.echo(Recipe.load(name, *(changes or [])).as_yaml(), nl=False)


@app.command()
def diff(
    first: str,
    second: str,
    changes: Overrides = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Print the axes on which two recipes differ, the second with changes if there are some."""
    from bertwright.recipes import Recipe
    from bertwright.recipes.comparison import differences

    found = differences(Recipe.load(first), Recipe.load(second, *(changes or [])))
    if as_json:
        report({d.axis: [d.first, d.second] for d in found}, as_json=True)
        return
    for difference in found:
        typer.echo(f"{difference.axis}: {difference.first} -> {difference.second}")
