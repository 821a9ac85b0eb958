"""``bertwright quickstart``: everything once, without a download."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.errors import Interrupted


def quickstart(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")] = Path(
        "quickstart"
    ),
    minutes: Annotated[
        float, typer.Option(min=0.01, help="Minutes of pre-training; the rest takes one or two.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Train, fine-tune and export an encoder on text that is already here."""
    from bertwright.machine.process import seconds_since_start, tune_process

    spent = seconds_since_start()
    tune_process()
    from bertwright.studies.quickstart import quickstart

    try:
        found = quickstart(output, minutes, say if as_json else print, spent)
    except Interrupted as interrupted:
        say(f"bertwright: stopped: remove {output} to begin again")
        raise typer.Exit(interrupted.exit_code) from None
    if as_json:
        report(found.as_dict(), as_json)
