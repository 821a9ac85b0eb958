"""``bertwright average``: average the weights of several models."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import OutputOption, PluginOption
from bertwright.cli.output import JsonOption, print_result


def average(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Model folders or names on the Hub, or checkpoints of a run "
            "(RUN/checkpoints/step-*).",
        ),
    ],
    output: OutputOption,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Average the weights of several models or checkpoints."""
    from bertwright.interop.imported_folder import bertwright_folder
    from bertwright.training.weight_averaging import average_models

    parameters = average_models([bertwright_folder(model) for model in models], output)
    print_result({"model": str(output), "averaged": len(models), "parameters": parameters}, as_json)
