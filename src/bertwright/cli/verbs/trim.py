"""``bertwright trim``: remove unused tokens from the vocabulary."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    ModelArgument,
    OutputOption,
    PluginOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.verbs.prepare import iter_texts
from bertwright.core.errors import UserError

if TYPE_CHECKING:
    from bertwright.models.text_model import TextModel
    from bertwright.tasks.formats.examples import Examples


def trim(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT...]", help="Files, folders or patterns, as prepare reads."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with examples of the task of a fine-tuned model."),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the tokens that texts do not use from the vocabulary.

    Single characters and bytes stay. Outputs for texts that use the kept tokens do not change.
    """
    from bertwright.compression.vocabulary.trimming import trim_vocabulary
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.interop.loading import load

    if not texts:
        refuse_options(context, "no texts are named", "column", "format")
    require_new_folder(output)
    large = load(model, "float32")
    examples = _task_examples(large, texts or [], data)
    small = trim_vocabulary(large, iter_texts(texts or [], column, format), examples)
    with atomic_folder(output) as folder:
        small.save(folder)
    sizes = {"tokens": small.tokenizer.vocab_size, "of": large.tokenizer.vocab_size}
    print_result({"model": str(output), **sizes}, as_json)


def _task_examples(model: "TextModel", texts: list[str], data: Path | None) -> "Examples":
    """Return the examples of the model's task."""
    from bertwright.tasks.data.task_data import TaskData
    from bertwright.tasks.fine_tuned_model import FineTunedModel

    if not texts and data is None:
        raise UserError("no text to keep tokens for: name files, or --data of a task")
    if data is None:
        return ()
    if not isinstance(model, FineTunedModel):
        raise UserError("--data is for a fine-tuned model: name files of text instead")
    _, train_examples, dev_examples = TaskData(model.task, data).load_splits()
    return [*train_examples, *dev_examples]
