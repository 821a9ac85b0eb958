"""The ``bertwright`` command: the list of its verbs and what happens to an error."""

import errno
import os
import sys
import tempfile
from typing import Annotated

import typer

from bertwright import __version__
from bertwright.cli import (
    analyse,
    average,
    bench,
    compress,
    count,
    doctor,
    embed,
    evaluate,
    export,
    fill_mask,
    finetune,
    generate,
    get,
    import_,
    minimal_pairs,
    pareto,
    predict,
    prepare,
    pretrain,
    prompt,
    quickstart,
    recipes,
    sample,
    sensitivity,
    serve,
    static,
    study,
    tokenizer,
    trace,
    trim,
    view,
)
from bertwright.errors import Interrupted, UserError

app = typer.Typer(
    name="bertwright",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def bertwright(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """BERT and its family: text in; a trained, fine-tuned, inspected, exported encoder out."""


app.add_typer(bench.app, name="bench")
app.add_typer(recipes.app, name="recipes")
app.add_typer(study.app, name="study")
app.add_typer(tokenizer.app, name="tokenizer")
app.command("analyse")(analyse.analyse)
app.command("average")(average.average)
app.command("compare")(study.compare)
app.command("count")(count.count)
app.command("doctor")(doctor.doctor)
app.command("embed")(embed.embed)
app.command("evaluate")(evaluate.evaluate)
app.command("export")(export.export)
app.command("fill-mask")(fill_mask.fill_mask)
app.command("finetune")(finetune.finetune)
app.command("compress")(compress.compress)
app.command("pareto")(pareto.pareto)
app.command("generate")(generate.generate)
app.command("get")(get.get)
app.command("import")(import_.import_)
app.command("minimal-pairs")(minimal_pairs.minimal_pairs)
app.command("predict")(predict.predict)
app.command("prepare")(prepare.prepare)
app.command("pretrain")(pretrain.pretrain)
app.command("prompt")(prompt.prompt)
app.command("quickstart")(quickstart.quickstart)
app.command("sample")(sample.sample)
app.command("sensitivity")(sensitivity.sensitivity)
app.command("serve")(serve.serve)
app.command("static")(static.static)
app.command("trace")(trace.trace)
app.command("trim")(trim.trim)
app.command("view")(view.view)


_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Error numbers of a standard output, or of a temporary file, that takes no more."""


def main() -> None:
    """Run one verb; a user's mistake is one sentence on stderr and exit code 2, a signal another
    and its own code."""
    # A shell may have closed them.
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"bertwright: {error}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as interrupted:
        print(f"bertwright: {interrupted}", file=sys.stderr)
        sys.exit(interrupted.exit_code)
    except OSError as error:
        if error.filename is not None:
            print(f"bertwright: {error.filename}: {error.strerror}: name another", file=sys.stderr)
        elif error.errno in _OF_OUTPUT:
            # What is still to be flushed at the end of the process has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            where = f"standard output, or temporary files in {tempfile.gettempdir()}"
            print(f"bertwright: {error.strerror} ({where}): free some space", file=sys.stderr)
        else:
            raise
        sys.exit(2)
