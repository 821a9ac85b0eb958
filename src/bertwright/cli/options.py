"""Options that several verbs share."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import log
from bertwright.core.config import InferencePrecision
from bertwright.core.errors import TrainingInterrupted, UserError


def _import_plugin(plugin: Path | None) -> Path | None:
    if plugin is not None:
        from bertwright.runtime.process import configure_process

        configure_process()
        from bertwright.recipes.loading import import_plugin

        import_plugin(plugin)
    return plugin


PluginOption = Annotated[
    Path | None,
    typer.Option(
        help="Python file with your own axes, objectives or analyses, imported first.",
        callback=_import_plugin,
    ),
]
ModelArgument = Annotated[
    Path, typer.Argument(help="Model folder, of bertwright or of Hugging Face.")
]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="Output folder.")]
PrecisionOption = Annotated[
    InferencePrecision | None,
    typer.Option(help="Compute precision; by default the fastest on this machine."),
]
LanguageOption = Annotated[
    str | None,
    typer.Option(help="Language of the text, for encoders with language embeddings."),
]
ColumnOption = Annotated[
    str, typer.Option(help="Column that holds the text, in formats with columns.")
]
FormatOption = Annotated[
    str | None,
    typer.Option(help="Format of the input; by default from the file name: txt, csv, jsonl, ..."),
]
NumWorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Worker processes; by default one per core.")
]


def refuse_options(context: typer.Context, reason: str, *names: str) -> None:
    """Raise UserError for the first of these options that the command line states."""
    for name in names:
        if is_stated(context, name):
            raise UserError(f"{reason}: leave --{name.replace('_', '-')} out")


def is_stated(context: typer.Context, name: str) -> bool:
    """Return whether the command line states a parameter."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@contextmanager
def exit_on_interrupt() -> Generator[None]:
    """Exit with the code of the signal that interrupted training."""
    try:
        yield
    except TrainingInterrupted as interrupted:
        log(f"bertwright: {interrupted}; nothing was written")
        raise typer.Exit(interrupted.exit_code) from None
