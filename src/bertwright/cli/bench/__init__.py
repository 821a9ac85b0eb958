"""``bertwright bench``: speed and learning, measured against the peers on this machine."""

import typer

from bertwright.cli.bench import scores, speed

app = typer.Typer(help="Measure speed and learning against the peers.", no_args_is_help=True)
app.add_typer(speed.app)
app.add_typer(scores.app)
