"""``bertwright tokenizer``: learn a vocabulary from text."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.prepare import Column, Format, LanguageColumn, Texts, Workers

app = typer.Typer(help="Learn a vocabulary from text.", no_args_is_help=True)


@app.callback()
def tokenizer() -> None:
    """Learn a vocabulary from text."""


@app.command()
def train(
    texts: Texts,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")],
    kind: Annotated[str, typer.Option(help="wordpiece, byte-bpe, unigram or words.")] = "wordpiece",
    vocab_size: Annotated[int, typer.Option(help="How many pieces, at most.")] = 16_384,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Lower-case and drop accents (not byte-bpe).")
    ] = False,
    sentinels: Annotated[
        int, typer.Option(help="How many of them stand for spans that are taken out (t5: 100).")
    ] = 0,
    column: Column = "text",
    format: Format = None,
    language_column: LanguageColumn = None,
    alpha: Annotated[
        float,
        typer.Option(help="The exponent of the languages' shares; below 1, small ones count more."),
    ] = 1.0,
    num_workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Learn a vocabulary; the same text gives the same one, whatever the number of processes.

    What is called WordPiece training here, as in the tokenizers library, is byte-pair merging of
    characters; cutting words into the longest known pieces is WordPiece's.
    """
    from bertwright.text.vocabularies import train_on_files

    trained = train_on_files(
        texts,
        output,
        {"kind": kind, "size": vocab_size, "lowercase": lowercase, "sentinels": sentinels},
        column=column,
        format=format,
        language_column=language_column,
        alpha=alpha,
        num_workers=num_workers,
    )
    result = {"kind": trained.kind, "size": trained.size, "hash": trained.hash}
    report(result, as_json)
