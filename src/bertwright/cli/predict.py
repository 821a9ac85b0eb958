"""``bertwright predict``: a fine-tuned model's answers, one JSON object a line."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from bertwright.cli.plugin import Plugin
from bertwright.cli.stated import refuse


def predict(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")],
    file: Annotated[
        Path,
        typer.Argument(help="Texts: .txt, .jsonl, .csv, .tsv, CoNLL; - for standard input."),
    ] = Path("-"),
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A file instead of standard output.")
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Standard input has a JSON object on each line.")
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Predict for every line of a file or of standard input, in order.

    A text on each line; a pair of texts with a tab between; words to tag set apart by spaces.
    """
    from bertwright.machine import tune_allocator

    tune_allocator()
    from bertwright.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.tasks.fine_tuned import FineTuned
    from bertwright.tasks.formats.lines import read_lines
    from bertwright.tasks.prediction import predict_file, predict_lines

    if file != Path("-"):
        refuse(context, "a file says by its ending what it holds", "jsonl")
    loaded = load(model)
    if not isinstance(loaded, FineTuned):
        raise UserError(f"{model} is not fine-tuned for a task: run bertwright finetune first")
    if file == Path("-"):
        lines = ((f"standard input line {number}", line) for number, line in read_lines(file))
        predictions = predict_lines(loaded, lines, ".jsonl" if jsonl else ".txt")
    else:
        predictions = predict_file(loaded, file)
    with _writable(output) as opened:
        for prediction in predictions:
            opened.write(json.dumps(prediction, ensure_ascii=False) + "\n")


@contextmanager
def _writable(path: Path | None) -> Generator[TextIO]:
    """Standard output, or a file that is whole or not there."""
    from bertwright.files import atomic_file

    if path is None:
        yield sys.stdout
        return
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as opened:
        yield opened
