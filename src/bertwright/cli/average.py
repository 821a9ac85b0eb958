"""``bertwright average``: several models as one, the mean of their weights."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin


def average(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Model folders, or checkpoints of a run that has ended (RUN/checkpoints/step-*).",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model folder to write.")],
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Write the model whose weights are the mean of several that were trained alike."""
    from bertwright.training.averaging import average

    parameters = average(models, out)
    report({"folder": str(out), "averaged": len(models), "parameters": parameters}, as_json)
