"""``bertwright predict``: predict with a fine-tuned model, as JSON lines."""

import json
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from bertwright.cli.generation_options import GenerationOptions
from bertwright.cli.options import (
    EnsembleOption,
    FineTunedArgument,
    PluginOption,
    PrecisionOption,
    load_predictor,
    refuse_options,
)
from bertwright.cli.output import log
from bertwright.cli.task_options import with_options

if TYPE_CHECKING:
    from bertwright.core.files import ResumableFile
    from bertwright.data.readers.text_lines import LocatedLine


@with_options
def predict(
    context: typer.Context,
    model: FineTunedArgument,
    file: Annotated[
        Path,
        typer.Argument(help="Input file: .txt, .jsonl, .csv, .tsv or CoNLL; - for standard input."),
    ] = Path("-"),
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Output file, instead of standard output.")
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read standard input as JSON lines.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the output file of an interrupted run."),
    ] = False,
    ensemble: EnsembleOption = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Add the set of classes or tags, or the interval, that holds the correct one with "
            "this probability, such as 0.9: run calibrate first."
        ),
    ] = None,
    abstain_above: Annotated[
        float | None,
        typer.Option(
            metavar="RISK",
            help="Say which predictions to withhold, so that at most this fraction of the others "
            "is wrong, such as 0.05: run calibrate first.",
        ),
    ] = None,
    *,
    options: GenerationOptions,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
) -> None:
    """Predict for every line of a file or of standard input, in order.

    A line is a text, a pair of texts separated by a tab, or words to tag separated by spaces.
    """
    from bertwright.core.errors import UserError
    from bertwright.core.files import require_different_file
    from bertwright.core.messages import count_noun
    from bertwright.data.readers.text_lines import read_lines
    from bertwright.tasks.prediction import TRUNCATED_KEY, predict_file, predict_lines

    if output is not None:
        require_different_file(output, file)
    if file != Path("-"):
        refuse_options(context, "the format of a file is that of its name", "jsonl")
    models = [model, *(ensemble or ())]
    loaded = load_predictor(models, precision)
    options.apply(loaded)
    if coverage is not None or abstain_above is not None:
        from bertwright.tasks.conformal.predictor import ConformalPredictor
        from bertwright.tasks.fine_tuned_model import FineTunedModel

        if not isinstance(loaded, FineTunedModel):
            raise UserError("--coverage and --abstain-above are of one model: leave --ensemble out")
        loaded = ConformalPredictor(loaded, coverage, abstain_above)
    stated = {"coverage": coverage, "abstain_above": abstain_above}
    guarantees = {name: value for name, value in stated.items() if value is not None}
    if resume and output is None:
        raise UserError("--resume continues a file: name it with -o")
    with _open_output(output, resume, models, precision, {**options.stated(), **guarantees}) as (
        stream,
        earlier_lines,
    ):
        if file == Path("-"):
            lines = _check_standard_input(read_lines(file), jsonl)
            predictions = predict_lines(loaded, lines, ".jsonl" if jsonl else ".txt", earlier_lines)
        else:
            predictions = predict_file(loaded, file, earlier_lines)
        num_cut = 0
        for prediction in predictions:
            stream.write(json.dumps(prediction, ensure_ascii=False) + "\n")
            num_cut += TRUNCATED_KEY in prediction
    if num_cut:
        stride = ", or with output_type.stride" * loaded.can_use_stride
        log(
            f"truncated {count_noun(num_cut, 'text')} ({TRUNCATED_KEY} counts the tokens that are "
            f"missing): fine-tune with a greater max_length{stride}"
        )


def _check_standard_input(lines: Iterable[tuple[int, str]], jsonl: bool) -> Iterator["LocatedLine"]:
    from bertwright.core.errors import UserError

    for number, line in lines:
        if not jsonl and line.startswith('{"'):
            raise UserError(f"standard input line {number} is a JSON object: add --jsonl")
        yield f"standard input line {number}", line


@contextmanager
def _open_output(
    path: Path | None,
    resume: bool,
    models: Sequence[Path],
    precision: str | None,
    settings: Mapping[str, Any],
) -> Generator[tuple[TextIO, Iterator["LocatedLine"]]]:
    """Yield a stream to write to, and the lines that an interrupted run has already written."""
    if path is None:
        yield sys.stdout, iter(())
        return
    from bertwright.data.readers.text_lines import read_lines

    file = resumable_output(path, models, precision, settings)
    with file.open(resume) as stream:
        lines = read_lines(file.partial_path) if resume else ()
        yield stream, ((f"{file.partial_path} line {number}", line) for number, line in lines)


def resumable_output(
    path: Path,
    models: Sequence[Path],
    precision: str | None,
    settings: Mapping[str, Any] | None = None,
) -> "ResumableFile":
    """Return the output file, which resumes only with the same models, settings and plugins."""
    from bertwright import __version__
    from bertwright.core.files import ResumableFile, content_hash
    from bertwright.data.hub.download import local_folder
    from bertwright.recipes.loading import imported_plugins

    return ResumableFile(
        path,
        {
            "model": content_hash(*map(local_folder, models)),
            "precision": str(precision),
            "settings": json.dumps(settings or {}),
            "plugin": content_hash(*imported_plugins()),
            "version of bertwright": __version__,
        },
    )
