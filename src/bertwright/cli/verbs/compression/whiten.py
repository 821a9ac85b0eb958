"""``bertwright whiten``: make the vectors of texts uncorrelated."""

from typing import Annotated

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    ModelArgument,
    OutputOption,
    PluginOption,
    PrecisionOption,
)
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.texts import log_invalid_bytes


def whiten(
    model: ModelArgument,
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="Files, folders or quoted patterns with texts like those to embed: .txt (one text "
            "per line), .jsonl, .csv, .tsv, .parquet, each also .gz or .zst.",
        ),
    ],
    output: OutputOption,
    dimensions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Dimension of the new vectors; by default all directions that vary."
        ),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the vectors of texts uncorrelated, by a linear map fitted to a sample of texts.

    The vectors of a pre-trained encoder share a few directions, so that all texts seem similar. No
    labels and no training are needed.
    """
    from bertwright.compression.whitening import whiten as whiten_vectors
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.data.document import ReadCounts
    from bertwright.data.readers.identified_texts import read_identified_texts
    from bertwright.data.readers.sources import find_sources
    from bertwright.interop.loading import load

    require_new_folder(output)
    counts = ReadCounts()
    contents = read_identified_texts(find_sources(texts, column, format, counts), counts)
    # Whitening amplifies the directions of least variance, and with them rounding.
    loaded = load(model, precision or "float32")
    result = whiten_vectors(loaded, (text.content for text in contents), dimensions)
    with atomic_folder(output) as folder:
        result.model.save(folder)
    log_invalid_bytes(counts)
    print_result(
        {
            "model": str(output),
            "dimensions": result.model.model.recipe.vector_width,
            "explained_variance": result.explained_variance,
            "texts": result.num_texts,
        },
        as_json,
    )
