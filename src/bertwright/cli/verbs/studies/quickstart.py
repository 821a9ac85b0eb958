"""``bertwright quickstart``: train, fine-tune and export, without a download."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import JsonOption, log, print_result
from bertwright.core.errors import TrainingInterrupted


def quickstart(
    output: Annotated[Path, typer.Option("-o", "--output", help="Output folder.")] = Path(
        "quickstart"
    ),
    minutes: Annotated[
        float, typer.Option(min=0.01, help="Minutes of pre-training; the rest takes one or two.")
    ] = 5.0,
    as_json: JsonOption = False,
) -> None:
    """Train, fine-tune and export an encoder on text that is on this machine."""
    from bertwright.runtime.process import process_age_seconds
    from bertwright.studies.quickstart import quickstart

    try:
        result = quickstart(output, minutes, log if as_json else print, process_age_seconds())
    except TrainingInterrupted as interrupted:
        log(f"bertwright: stopped: remove {output} to start again")
        raise typer.Exit(interrupted.exit_code) from None
    if as_json:
        print_result(result.as_dict(), as_json)
