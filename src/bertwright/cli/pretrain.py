"""``bertwright pretrain``: text as shards to a trained encoder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.cli.recipes import recipe_and_changes
from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.training.teaching import PieceTeacher


def pretrain(
    data: Annotated[Path, typer.Option(help="A folder that prepare wrote.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model folder to write.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [KEY.PATH=VALUE ...]",
            help="A recipe (modern-mini, if none is named), and changes to it.",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Train for so long, not for steps: 90s, 20m, 1.5h.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in -o, if there is one.")
    ] = False,
    start_from: Annotated[
        Path | None, typer.Option("--from", help="A model folder whose weights are the first.")
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(help="A larger model folder that is learned from beside the text."),
    ] = None,
    lessons: Annotated[
        str | None,
        typer.Option(
            help="What it says, by name or as a YAML file: distil-mlm (if none is named), "
            "tiny-general, relations, mobile-progressive; to a student with a vocabulary of its "
            "own dual-vocabulary, mixed-vocabulary."
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write event files for TensorBoard.")
    ] = False,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Train an encoder on prepared text."""
    from bertwright.machine.process import seconds_since_start, tune_process

    spent = seconds_since_start()
    tune_process()
    from bertwright.training import pretraining

    name, changes = recipe_and_changes(words)
    result = pretraining.pretrain(
        name,
        data,
        output,
        changes=changes,
        budget=budget,
        resume=resume,
        start_from=start_from,
        teacher=_teacher(teacher, lessons),
        tensorboard=tensorboard,
        seconds_spent=spent,
    )
    cost = {"steps": result.steps, "tokens": result.tokens, "seconds": result.seconds}
    report({"model": str(result.path), **cost, **result.figures}, as_json)


def _teacher(folder: Path | None, lessons: str | None) -> "PieceTeacher | None":
    if folder is None:
        if lessons is not None:
            raise UserError("--lessons says what a teacher says: name one with --teacher")
        return None
    from bertwright.compression.lessons.lessons import Lessons
    from bertwright.interop.loading import load

    return Lessons.load(lessons or "distil-mlm").of(load(folder))
