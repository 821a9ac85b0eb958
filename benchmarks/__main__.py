"""Measure speed and scores against other libraries: ``python -m benchmarks NAME``."""

import typer

from benchmarks import score_commands, search_commands, speed_commands
from bertwright.cli.errors import run_app

app = typer.Typer(
    help="Measure speed and scores against other libraries on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(speed_commands.app)
app.add_typer(score_commands.app)
app.add_typer(search_commands.app)

if __name__ == "__main__":
    run_app(app, "benchmarks")
