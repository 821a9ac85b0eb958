"""``bertwright trim``: a model without the pieces that nobody needs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.cli.prepare import Column, Format, texts_in
from bertwright.cli.stated import refuse
from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.model.text_model import TextModel
    from bertwright.tasks.formats.examples import Examples


def trim(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="The folder of a model, fine-tuned or not.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT...]", help="Files, folders or patterns, as prepare reads."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="A folder with examples of the task that a fine-tuned model knows."),
    ] = None,
    column: Column = "text",
    format: Format = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Keep the pieces that texts need, single characters and bytes; nothing is trained.

    Texts that need no others have the same answers as before.
    """
    from bertwright.compression.trimming import trim as trimmed
    from bertwright.files import atomic_folder, require_free
    from bertwright.interop.loading import load

    if not texts:
        refuse(context, "no texts are named", "column", "format")
    require_free(output)
    whole = load(model, "float32")
    examples = _examples(whole, texts or [], data)
    small = trimmed(whole, texts_in(texts or [], column, format), examples)
    with atomic_folder(output) as folder:
        small.save(folder)
    pieces = [each.tokenizer.size for each in (small, whole)]
    report({"model": str(output), "pieces": pieces[0], "of": pieces[1]}, as_json)


def _examples(model: "TextModel", texts: list[str], data: Path | None) -> "Examples":
    """Those of the task that a model knows."""
    from bertwright.tasks.data import TaskData
    from bertwright.tasks.fine_tuned import FineTuned

    if not texts and data is None:
        raise UserError("there is no text to keep pieces for: name files, or --data of a task")
    if data is None:
        return ()
    if not isinstance(model, FineTuned):
        raise UserError("--data is for a fine-tuned model: name files of text instead")
    _, learned, judged = TaskData(model.task, data).parts()
    return [*learned, *judged]
