"""``--plugin``: a file with choices of one's own, for every verb that reads a recipe or a model."""

from pathlib import Path
from typing import Annotated

import typer


def _imported(plugin: Path | None) -> Path | None:
    if plugin is not None:
        from bertwright.machine.process import tune_process

        tune_process()
        from bertwright.recipes.loading import import_plugin

        import_plugin(plugin)
    return plugin


Plugin = Annotated[
    Path | None,
    typer.Option(
        help="A Python file with choices of your own, imported first.",
        callback=_imported,
    ),
]
