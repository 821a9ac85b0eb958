"""``bertwright predict``: a fine-tuned model's answers, one JSON object a line."""

import json
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from bertwright.cli.output import say
from bertwright.cli.plugin import Plugin
from bertwright.cli.precision import Precision
from bertwright.cli.stated import refuse

if TYPE_CHECKING:
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
    with _writable(output, resume) as (opened, kept):
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
def _writable(path: Path | None, resume: bool) -> Generator[tuple[TextIO, Iterator["Line"]]]:
    """Standard output, or a file; and the lines that it has already.

    Until it is whole a file has ``.part`` behind its name: what an interrupted run has left, whose
    last line, where that is cut, is predicted anew. Input that cannot be read leaves nothing.
    """
    from bertwright.errors import UserError
    from bertwright.files import full_disk_named
    from bertwright.tasks.formats.lines import read_lines

    if path is None:
        yield sys.stdout, iter(())
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    if path.exists() and resume:
        raise UserError(f"{path} is whole: there is nothing to go on with")
    if part.exists() and not resume:
        raise UserError(f"{part} was left by an interrupted run: say --resume, or remove it")
    size = _whole_lines(part) if resume and part.exists() else 0
    with full_disk_named(path):
        try:
            with open(part, "a", encoding="utf-8") as opened:
                yield opened, ((f"{part} line {n}", line) for n, line in read_lines(part))
        except UserError:
            if not size:
                part.unlink()
            raise
        part.replace(path)


def _whole_lines(part: Path) -> int:
    """How many bytes the lines of a file have that end; what stands behind them is cut off."""
    with open(part, "r+b") as opened:
        size = 0
        if part.stat().st_size:
            with mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
                size = content.rfind(b"\n") + 1
        opened.truncate(size)
    return size
