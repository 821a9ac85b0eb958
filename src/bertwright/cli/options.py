"""Options that several verbs share."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from bertwright.cli.errors import UsageError
from bertwright.cli.output import log
from bertwright.core.config import InferencePrecision
from bertwright.core.errors import TrainingInterrupted, UserError

if TYPE_CHECKING:
    from bertwright.tasks.ensemble import Ensemble
    from bertwright.tasks.fine_tuned_model import FineTunedModel


def _import_plugin(plugin: Path | None) -> Path | None:
    if plugin is not None:
        from bertwright.runtime.process import configure_process

        configure_process()
        from bertwright.recipes.loading import import_plugin

        import_plugin(plugin)
    return plugin


class DocumentedCommand(TyperCommand):
    """A command whose help breaks lines at the width of the terminal, not as its docstring does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        paragraphs = cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; errors name this command, also those of the parser of options."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            error.ctx = error.ctx or ctx
            raise


class ComputingCommand(DocumentedCommand):
    """A command that configures the process before computing, but not for ``--help``."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        from bertwright.runtime.process import configure_process

        configure_process()
        return super().invoke(ctx)


PluginOption = Annotated[
    Path | None,
    typer.Option(
        help="Python file with your own axes, objectives or analyses, imported first.",
        callback=_import_plugin,
    ),
]
ModelArgument = Annotated[
    Path,
    typer.Argument(
        help="Model folder, of bertwright or of Hugging Face, or a name on the Hub: "
        "owner/name, owner/name@revision."
    ),
]
FineTunedArgument = Annotated[
    Path, typer.Argument(help="Fine-tuned model: a folder, or a name on the Hub.")
]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="Output folder.")]
PrecisionOption = Annotated[
    InferencePrecision | None,
    typer.Option(help="Compute precision; by default the fastest on this machine."),
]
EnsembleOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="Further fine-tuned model folder of the same task, whose predictions are averaged "
        "with those of the first; may be repeated."
    ),
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
CompareWithOption = Annotated[
    Path | None,
    typer.Option(help="Second model to compare with, such as the one before fine-tuning."),
]
MaxLengthOption = Annotated[
    int, typer.Option(min=4, help="Maximum sequence length; longer texts are truncated.")
]
NumWorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Worker processes; by default one per core.")
]


def load_fine_tuned(
    folder: Path,
    precision: InferencePrecision | None = None,
    otherwise: str = "",
    needs_head_for: str | None = None,
) -> "FineTunedModel":
    """Load a fine-tuned model; UserError for others, with advice that ends with ``otherwise``.

    ``needs_head_for`` is a command that models without a task head, which generate text, lack.
    """
    from bertwright.interop.loading import load
    from bertwright.tasks.fine_tuned_model import FineTunedModel

    model = load(folder, precision)
    if not isinstance(model, FineTunedModel):
        advice = f"run bertwright finetune first{otherwise}"
        raise UserError(f"{folder} is not fine-tuned for a task: {advice}")
    if needs_head_for is not None:
        model.require_task_head(needs_head_for)
    return model


def load_predictor(
    folders: Sequence[Path], precision: InferencePrecision | None = None
) -> "FineTunedModel | Ensemble":
    """Load a fine-tuned model, or the ensemble of several."""
    first, *others = (load_fine_tuned(folder, precision) for folder in folders)
    if not others:
        return first
    from bertwright.tasks.ensemble import Ensemble

    return Ensemble([first, *others])


def refuse_options(context: typer.Context, reason: str, *names: str) -> None:
    """Raise UserError for the first of these options that is on the command line."""
    for name in names:
        if is_stated(context, name):
            raise UserError(f"{reason}: leave --{name.replace('_', '-')} out")


def is_stated(context: typer.Context, name: str) -> bool:
    """Return whether a parameter is set on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


RUN_AGAIN = "run the same command to continue"
"""Consequence of an interruption where finished parts are kept."""


@contextmanager
def exit_on_interrupt(consequence: str = "nothing was written") -> Generator[None]:
    """Exit with the code of the signal if training is interrupted; log the ``consequence``."""
    try:
        yield
    except TrainingInterrupted as interrupted:
        log(f"bertwright: {interrupted.reason}; {consequence}")
        raise typer.Exit(interrupted.exit_code) from None
