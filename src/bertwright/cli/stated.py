"""Options that were stated, and mean nothing beside another one."""

import typer

from bertwright.errors import UserError


def refuse(context: typer.Context, because: str, *names: str) -> None:
    """Refuse options of these names where the command line states them."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UserError(f"{because}: leave --{name.replace('_', '-')} out")
