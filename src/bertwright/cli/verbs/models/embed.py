"""``bertwright embed``: compute text embeddings."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertwright.cli.options import (
    LanguageOption,
    ModelArgument,
    PluginOption,
    PrecisionOption,
    is_stated,
    refuse_options,
)
from bertwright.cli.output import JsonOption, check_output_file, log, print_result

if TYPE_CHECKING:
    from bertwright.models.late_chunking import TextChunks
    from bertwright.models.text_model import TextModel

TEXT_SUFFIXES = (".json", ".jsonl", ".txt", ".csv", ".tsv")

TEXTS_PER_GROUP = 4096
"""Number of texts that are sorted by length into batches together."""


def embed(
    context: typer.Context,
    model: ModelArgument,
    file: Annotated[
        Path,
        typer.Argument(help="Text file, one text per line, plain or .gz; - for standard input."),
    ] = Path("-"),
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Write a file instead of JSON lines: a NumPy array (N, D), a SciPy sparse matrix "
            "of token weights (.npz), or the vectors of all tokens and the length of every text "
            "(.npz).",
            callback=check_output_file,
        ),
    ] = None,
    text_role: Annotated[
        Literal["query", "document"],
        typer.Option(
            "--as",
            help="What the texts are, for a model trained for retrieval, or with prompts.",
        ),
    ] = "document",
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
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Embed every part of at most N tokens of a text, in the context of the whole text "
            "(late chunking). A line of JSON, or a row of an .npz file, is a part with its "
            "characters, start and stop.",
        ),
    ] = None,
    language: LanguageOption = None,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute an embedding for every line of text."""
    from bertwright.core.errors import UserError
    from bertwright.core.files import atomic_file, require_different_file
    from bertwright.core.messages import count_noun
    from bertwright.data.readers.text_lines import read_lines
    from bertwright.interop.loading import load
    from bertwright.models.vector_files import vector_records, write_vectors

    if as_json and output is None:
        raise UserError("embed --json describes a file: name it with -o")
    if output is not None:
        require_different_file(output, file)
        if output.suffix in TEXT_SUFFIXES:
            raise UserError(
                f"{output}: -o writes arrays, not text: name a .npy or .npz file, or leave -o out "
                f"for JSON lines"
            )
    loaded = load(model, precision)
    encoder = loaded.retrieval_encoder()
    is_dense = encoder.representation == "dense"
    suffix = ".npy" if is_dense and chunk_tokens is None else ".npz"
    if output is not None and output.suffix in (".npy", ".npz") and output.suffix != suffix:
        raise UserError(f"{output}: the arrays are written as {suffix}: name a {suffix} file")
    if not is_dense:
        options = ("pooling", "layers", "layer_mixing", "normalise", "chunk_tokens", "language")
        kind = f"{model} gives texts {encoder.representation} representations of its own"
        refuse_options(context, kind, *options)

    prompt = ""
    if is_stated(context, "text_role"):
        prompts = loaded.model.recipe.vectors
        prompt = prompts.query_prompt if text_role == "query" else prompts.document_prompt

    def encode(texts: list[str]) -> Any:
        if is_dense:
            prompted = [f"{prompt}{text}" for text in texts]
            return loaded.embed(prompted, pooling, normalise, layers, layer_mixing, language)
        return (
            encoder.encode_queries(texts)
            if text_role == "query"
            else encoder.encode_documents(texts)
        )

    def encode_groups() -> Iterator[tuple[list[str], Any]]:
        num_truncated = 0
        lines = (line for _, line in read_lines(file))
        while texts := list(islice(lines, TEXTS_PER_GROUP)):
            yield texts, encode(texts)
            if is_dense:
                num_truncated += loaded.num_truncated([f"{prompt}{text}" for text in texts])
        if num_truncated:
            log(
                f"truncated {count_noun(num_truncated, 'text')} to {loaded.max_length} tokens: "
                f"embed texts in parts with --chunk-tokens"
            )

    if chunk_tokens is not None:
        settings = (chunk_tokens, pooling, normalise, layers, layer_mixing, language, prompt)
        _embed_chunks(loaded, file, output, settings, as_json)
        return
    if output is None:
        for texts, vectors in encode_groups():
            records = vector_records(vectors, loaded.tokenizer)
            for text, record in zip(texts, records, strict=True):
                sys.stdout.write(json.dumps({"text": text, **record}, ensure_ascii=False) + "\n")
        return
    empty = encode([])
    with atomic_file(output) as temporary, open(temporary, "wb") as stream:
        parts = [empty, *(vectors for _, vectors in encode_groups())]
        num_texts = write_vectors(stream, parts, encoder.representation)
    width = empty.shape[1] if is_dense else encoder.width
    print_result({"file": str(output), "texts": num_texts, "width": width}, as_json)


def _embed_chunks(
    model: "TextModel",
    file: Path,
    output: Path | None,
    settings: tuple[Any, ...],
    as_json: bool,
) -> None:
    """Write the vectors of the chunks of every line; ``settings`` are those of embed_chunks."""
    from bertwright.core.files import atomic_file
    from bertwright.data.readers.text_lines import read_lines
    from bertwright.models.vector_files import write_chunks

    def chunks() -> Iterator[tuple[str, "TextChunks"]]:
        lines = (line for _, line in read_lines(file))
        while texts := list(islice(lines, TEXTS_PER_GROUP)):
            yield from zip(texts, model.embed_chunks(texts, *settings), strict=True)

    if output is not None:
        with atomic_file(output) as temporary, open(temporary, "wb") as stream:
            parts = [part for _, part in chunks()]
            vectors = write_chunks(stream, parts)
        shape = {"texts": len(parts), "chunks": vectors.shape[0], "width": vectors.shape[1]}
        print_result({"file": str(output), **shape}, as_json)
        return
    for number, (text, part) in enumerate(chunks(), start=1):
        for (start, stop), vector in zip(part.offsets.tolist(), part.vectors, strict=True):
            record = {"line": number, "start": start, "stop": stop, "text": text[start:stop]}
            record["vector"] = vector.tolist()
            sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
