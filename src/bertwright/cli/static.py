"""``bertwright static``: a table of vectors that a model is distilled into."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.cli.precision import Precision
from bertwright.cli.prepare import Column, Format, texts_in
from bertwright.cli.stated import refuse


def static(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT...]",
            help="Files, folders or patterns, as prepare reads, by which pieces are counted; "
            "without any the first ones are taken for the most frequent.",
        ),
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="How many numbers a vector has.")] = 256,
    column: Column = "text",
    format: Format = None,
    precision: Precision = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Write a model without blocks: what another says of each piece alone, in a table.

    The vector of a text is the mean of those of its pieces; rare ones count more.
    """
    from bertwright.machine.process import tune_process

    tune_process()
    from bertwright.compression.static_table import static_table
    from bertwright.compression.trimming import counted
    from bertwright.files import atomic_folder, require_free
    from bertwright.interop.loading import load

    if not texts:
        refuse(context, "no texts are named", "column", "format")
    require_free(output)
    whole = load(model, precision)
    counts = counted(whole.tokenizer, texts_in(texts, column, format)) if texts else None
    table = static_table(whole, width, counts)
    with atomic_folder(output) as folder:
        table.save(folder)
    report({"model": str(output), "pieces": table.tokenizer.size, "width": width}, as_json)
