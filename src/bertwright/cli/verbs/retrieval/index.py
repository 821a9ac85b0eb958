"""``bertwright index``: index texts for search."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    OutputOption,
    PluginOption,
    PrecisionOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.texts import log_invalid_bytes

IndexModelOption = Annotated[
    Path | None, typer.Option(help="Model folder that encodes the texts; BM25 needs none.")
]
SearchModelOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the model of the index, if it is no longer where it was."),
]


def index(
    context: typer.Context,
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="Files, folders, quoted patterns, or - for standard input: .txt (one text per "
            "line), .jsonl, .csv, .tsv, .parquet, each also .gz or .zst. Tables may have the "
            "columns id and title.",
        ),
    ],
    output: OutputOption,
    model: IndexModelOption = None,
    kind: Annotated[
        Literal["dense", "sparse", "late-interaction", "bm25", "hybrid"] | None,
        typer.Option(
            help="What texts are compared by: the vectors of the model (the default), words, or "
            "both by reciprocal rank fusion."
        ),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    vector_type: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="Type of the stored vectors and weights."),
    ] = "float16",
    dimensions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Store only the first dimensions of vectors, of a model trained for it "
            "(matryoshka_dims).",
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Compare dense vectors with all texts; by default large indexes have a graph "
            "(HNSW).",
        ),
    ] = False,
    stop_words: Annotated[
        str | None,
        typer.Option(
            help="Language whose stop words BM25 leaves out, such as en; none by default."
        ),
    ] = None,
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Split texts into chunks of at most N tokens; each has a vector in the context of "
            "its whole text (late chunking), and is found with its characters, start and stop.",
        ),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add the texts to an index, with its settings.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run over the same texts.")
    ] = False,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Index texts for bertwright search, in bounded memory.

    The index is complete when the command ends; until then, an index that is added to keeps
    answering from its former texts.
    """
    from bertwright.core.errors import UserError
    from bertwright.data.document import ReadCounts
    from bertwright.data.readers.identified_texts import read_identified_texts
    from bertwright.data.readers.sources import STANDARD_INPUT, content_version, find_sources
    from bertwright.retrieval.search_index import SearchIndex

    settings_options = ("vector_type", "dimensions", "exact", "stop_words", "chunk_tokens")
    if add:
        refuse_options(context, "--add keeps the settings of the index", "kind", *settings_options)
    counts = ReadCounts()
    sources = find_sources(texts, column, format, counts)
    if resume and any(source.name == STANDARD_INPUT for source in sources):
        raise UserError("--resume reads the texts again, and standard input is gone: name a file")
    versions = [(source.name, source.format, content_version(source)) for source in sources]
    settings = {name: value for name, value in context.params.items() if name in settings_options}
    built = SearchIndex.build(
        read_identified_texts(sources, counts),
        output,
        model,
        kind=kind,
        precision=precision,
        add=add,
        resume=resume,
        provenance={"text": json.dumps([column, versions])},
        log=log,
        **({} if add else settings),
    )
    if counts.empty_rows:
        log(f"left out {counts.empty_rows:,} rows without text")
    log_invalid_bytes(counts)
    print_result(
        {
            "index": str(output),
            "kind": built.manifest.settings.kind,
            "texts": built.manifest.num_texts,
            **({} if chunk_tokens is None else {"chunks": len(built)}),
            "segments": len(built.manifest.segments),
            "bytes": built.manifest.num_bytes,
        },
        as_json,
    )
