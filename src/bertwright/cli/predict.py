"""``bertwright predict``: a fine-tuned model's answers, one JSON object a line."""

import json
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from bertwright.cli.output import say
from bertwright.cli.plugin import Plugin
from bertwright.cli.precision import Precision
from bertwright.cli.stated import refuse

if TYPE_CHECKING:
    from bertwright.files import ResumableFile
    from bertwright.tasks.formats.lines import Line


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
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a file that an interrupted run has left in -o."),
    ] = False,
    precision: Precision = None,
    plugin: Plugin = None,
) -> None:
    """Predict for every line of a file or of standard input, in order.

    A text on each line; a pair of texts with a tab between; words to tag set apart by spaces.
    """
    from bertwright.machine.process import tune_process

    tune_process()
    from bertwright.errors import UserError
    from bertwright.files import require_other
    from bertwright.interop.loading import load
    from bertwright.tasks.fine_tuned import FineTuned
    from bertwright.tasks.formats.lines import read_lines
    from bertwright.tasks.prediction import predict_file, predict_lines
    from bertwright.tasks.prediction_lines import CUT

    if output is not None:
        require_other(output, file)
    if file != Path("-"):
        refuse(context, "a file says by its ending what it holds", "jsonl")
    loaded = load(model, precision)
    if not isinstance(loaded, FineTuned):
        raise UserError(f"{model} is not fine-tuned for a task: run bertwright finetune first")
    if resume and output is None:
        raise UserError("--resume goes on with a file: name it with -o")
    with _writable(output, resume, model, precision) as (opened, kept):
        if file == Path("-"):
            lines = _standard_input(read_lines(file), jsonl)
            predictions = predict_lines(loaded, lines, ".jsonl" if jsonl else ".txt", kept)
        else:
            predictions = predict_file(loaded, file, kept)
        num_cut = 0
        for prediction in predictions:
            opened.write(json.dumps(prediction, ensure_ascii=False) + "\n")
            num_cut += CUT in prediction
    if num_cut:
        lacks_stride = loaded.task.answer.lacks_stride and not loaded.maker.apart
        windows = ", or with answer.stride" if lacks_stride else ""
        say(
            f"{num_cut:,} of the answers are about texts that were cut ({CUT} says by how much): "
            f"fine-tune with a greater length{windows}"
        )


def _standard_input(lines: Iterable[tuple[int, str]], jsonl: bool) -> Iterator["Line"]:
    from bertwright.errors import UserError

    for number, line in lines:
        if not jsonl and line.startswith('{"'):
            raise UserError(f"standard input line {number} is a JSON object: say --jsonl")
        yield f"standard input line {number}", line


@contextmanager
def _writable(
    path: Path | None, resume: bool, model: Path, precision: str | None
) -> Generator[tuple[TextIO, Iterator["Line"]]]:
    """Yield standard output, or a file and the lines that it has already."""
    if path is None:
        yield sys.stdout, iter(())
        return
    from bertwright.tasks.formats.lines import read_lines

    file = resumable(path, model, precision)
    with file.opened(resume) as opened:
        kept = read_lines(file.part) if resume else ()
        yield opened, ((f"{file.part} line {number}", line) for number, line in kept)


def resumable(path: Path, model: Path, precision: str | None) -> "ResumableFile":
    """Return the file for the predictions of a model, which knows what decides them."""
    from bertwright import __version__
    from bertwright.files import ResumableFile, content_hash
    from bertwright.recipes.loading import imported_plugins

    return ResumableFile(
        path,
        {
            "model": content_hash(model),
            "precision": str(precision),
            "plugin": content_hash(*imported_plugins()),
            "version of bertwright": __version__,
        },
    )
