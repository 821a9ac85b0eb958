"""``bertwright embed``: texts to vectors."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.cli.precision import Precision

AT_ONCE = 4096
"""Texts that are batched by length together."""

Language = Annotated[
    str | None, typer.Option(help="Of the text, for an encoder with a vector for each (XLM).")
]


def embed(
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    file: Annotated[
        Path, typer.Argument(help="A text on each line, plain or .gz; - for standard input.")
    ] = Path("-"),
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write a NumPy file (N, D) instead of JSON lines."),
    ] = None,
    pooling: Annotated[
        Literal["mean", "cls"] | None,
        typer.Option(
            help="Mean over the pieces, or the first: the mean unless the folder says otherwise."
        ),
    ] = None,
    layers: Annotated[
        str,
        typer.Option(
            help="Which layers: last, a number (0: the embeddings), 2,4 or 5-8, last-4, all."
        ),
    ] = "last",
    mix: Annotated[
        Literal["concat", "sum", "mean"],
        typer.Option(help="Several layers side by side, their sum, or their mean."),
    ] = "concat",
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Scale every vector to length 1.")
    ] = False,
    language: Language = None,
    precision: Precision = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Turn every line into a vector, in order."""
    from bertwright.machine.process import tune_process

    tune_process()
    import numpy as np

    from bertwright.errors import UserError
    from bertwright.files import atomic_file, require_other
    from bertwright.interop.loading import load
    from bertwright.tasks.formats.lines import read_lines

    if as_json and output is None:
        raise UserError("embed --json says what was written: name a file with -o")
    if output is not None:
        require_other(output, file)
    loaded = load(model, precision)

    def embedded() -> Iterator[tuple[list[str], np.ndarray]]:
        lines = (line for _, line in read_lines(file))
        while texts := list(islice(lines, AT_ONCE)):
            yield texts, loaded.embed(texts, pooling, normalise, layers, mix, language)

    if output is None:
        for texts, vectors in embedded():
            for text, vector in zip(texts, vectors.tolist(), strict=True):
                line = {"text": text, "vector": vector}
                sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        return
    with atomic_file(output) as temporary, open(temporary, "wb") as opened:
        none = loaded.embed([], pooling, layers=layers, mix=mix)
        whole = np.concatenate([none, *(vectors for _, vectors in embedded())])
        np.save(opened, whole)
    report({"file": str(output), "texts": len(whole), "width": whole.shape[1]}, as_json)
