"""``bertwright embed``: compute text embeddings."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertwright.cli.options import LanguageOption, ModelArgument, PluginOption, PrecisionOption
from bertwright.cli.output import JsonOption, print_result

TEXTS_PER_CHUNK = 4096
"""Number of texts that are sorted by length into batches together."""


def embed(
    model: ModelArgument,
    file: Annotated[
        Path,
        typer.Argument(help="Text file, one text per line, plain or .gz; - for standard input."),
    ] = Path("-"),
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write a NumPy array (N, D) instead of JSON lines."),
    ] = None,
    pooling: Annotated[
        Literal["mean", "cls"] | None,
        typer.Option(help="Pooling over tokens; by default what the model folder says, else mean."),
    ] = None,
    layers: Annotated[
        str,
        typer.Option(
            help="Layers to use: last, a number (0: embeddings), 2,4 or 5-8, last-4, all."
        ),
    ] = "last",
    layer_mixing: Annotated[
        Literal["concat", "sum", "mean"],
        typer.Option(help="How several layers are combined."),
    ] = "concat",
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Scale every vector to length 1.")
    ] = False,
    language: LanguageOption = None,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute an embedding for every line of text."""
    import numpy as np

    from bertwright.core.errors import UserError
    from bertwright.core.files import atomic_file, require_different_file
    from bertwright.data.readers.text_lines import read_lines
    from bertwright.interop.loading import load

    if as_json and output is None:
        raise UserError("embed --json describes a file: name it with -o")
    if output is not None:
        require_different_file(output, file)
    loaded = load(model, precision)

    def embed_chunks() -> Iterator[tuple[list[str], np.ndarray]]:
        lines = (line for _, line in read_lines(file))
        while texts := list(islice(lines, TEXTS_PER_CHUNK)):
            yield texts, loaded.embed(texts, pooling, normalise, layers, layer_mixing, language)

    if output is None:
        for texts, vectors in embed_chunks():
            for text, vector in zip(texts, vectors.tolist(), strict=True):
                line = {"text": text, "vector": vector}
                sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        return
    with atomic_file(output) as temporary, open(temporary, "wb") as stream:
        empty = loaded.embed([], pooling, layers=layers, mix=layer_mixing)
        embeddings = np.concatenate([empty, *(vectors for _, vectors in embed_chunks())])
        np.save(stream, embeddings)
    num_texts, width = embeddings.shape
    print_result({"file": str(output), "texts": num_texts, "width": width}, as_json)
